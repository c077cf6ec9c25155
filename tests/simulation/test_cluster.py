"""Three whole brokers, sometimes more, in a simulated world, with clients, a virtual clock and all faults, from seeds.

A test runs many seeds, and stops at the first that fails. `BARNABAS_SEEDS=17` or `BARNABAS_SEEDS=100-200` in the
environment has it run only these:

    BARNABAS_SEEDS=17 make test ARGS="tests/simulation/test_cluster.py -k many_short"
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.sampling import cases
from tests.simulation.cluster_scenario import ClusterScenario, ShortScenario
from tests.simulation.cluster_shapes import SHAPES
from tests.simulation.world import WORLDS_AT_ONCE, many_worlds

IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
CHOSEN: Final = os.environ.get("BARNABAS_SEEDS", "")
SHORT_SEEDS: Final = 20_000 if IS_SOAK else 1_000
SHAPE_SEEDS: Final = 500 if IS_SOAK else 10
LONG_SEEDS: Final = 1_000 if IS_SOAK else 10


def ranges(count: int, at_once: int) -> list[Any]:
    """The seeds of each test: few enough that workers end at about the same time."""
    if CHOSEN:
        first, _, last = CHOSEN.partition("-")
        return [pytest.param(range(int(first), int(last or first) + 1), id=CHOSEN)]
    return [
        pytest.param(range(start, start + at_once), id=f"{start}-{start + at_once - 1}")
        for start in range(0, count, at_once)
    ]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Brokers warn about the faults, many times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(seed: int, kind: type[ClusterScenario] = ShortScenario) -> ClusterScenario:
    scenario = kind(seed)
    try:
        scenario.run()
    except BaseException as error:
        error.add_note(
            f"{kind.__name__}, seed {seed}, {scenario.world.now_s:.3f} s, faults {scenario.faults.done}."
            f" To run it alone, set BARNABAS_SEEDS={seed}"
        )
        raise
    return scenario


def run_all(seeds: range, kind: type[ClusterScenario]) -> None:
    """Prints the processor time: `pytest -rP` shows it. 1,000 short runs have a minute of two processors."""
    started_s = time.process_time()
    with many_worlds() as collect:
        for number, seed in enumerate(seeds, 1):
            run(seed, kind)
            if number % WORLDS_AT_ONCE == 0:
                collect()
    spent_s = time.process_time() - started_s
    print(
        f"{len(seeds)} runs of {kind.__name__}: {spent_s:.1f} s, {1_000 * spent_s / len(seeds):.0f} ms each"
    )


def test_a_cluster_keeps_its_promises_under_faults() -> None:
    run_all(range(cases(20, fast=10)), ShortScenario)


def test_all_kinds_of_clients_and_faults_at_once() -> None:
    scenario = run(0, ClusterScenario)
    assert scenario.journal.acknowledged
    assert scenario.journal.ledger
    assert all(logs.exposed_end for key, logs in scenario.invariants.logs.items() if key.topic == "events")


@pytest.mark.slow
@pytest.mark.parametrize("seeds", ranges(SHORT_SEEDS, 50))
def test_many_short_runs(seeds: range) -> None:
    run_all(seeds, ShortScenario)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", ranges(SHAPE_SEEDS, 10))
@pytest.mark.parametrize("shape", SHAPES)
def test_many_runs_that_look_for_one_kind_of_trouble(shape: type[ShortScenario], seeds: range) -> None:
    run_all(seeds, shape)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", ranges(LONG_SEEDS, 5))
def test_many_long_runs(seeds: range) -> None:
    run_all(seeds, ClusterScenario)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ShortScenario, ClusterScenario])
def test_a_seed_gives_the_same_bytes_again(kind: type[ClusterScenario]) -> None:
    assert run(1, kind).transcript == run(1, kind).transcript
