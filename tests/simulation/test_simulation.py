"""A whole broker in a simulated world, with clients, faults and a virtual clock, from seeds."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final

import pytest

from barnabas.log.checkpoints import read_offsets
from barnabas.log.file_system import WRITE
from barnabas.log.names import RECOVERY_POINT_CHECKPOINT
from tests.sampling import sample, seeds
from tests.simulation.scenario import PowerCuts, Scenario, UnflushedPowerCuts
from tests.simulation.workload import EVENTS, LEDGER

SOAK_SEEDS: Final = range(100, 400 if os.environ.get("BARNABAS_SOAK") == "1" else 120)


def run(seed: int, kind: type[Scenario] = Scenario) -> Scenario:
    scenario = kind(seed)
    try:
        scenario.run()
    except BaseException as error:
        error.add_note(f"seed {seed}, {scenario.world.now_s:.3f} s")
        raise
    return scenario


@pytest.mark.parametrize("seed", seeds(5, fast=1))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    scenario = run(seed)
    assert scenario.journal.acknowledged
    assert scenario.transcript


@pytest.mark.slow
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_nothing_acknowledged_is_lost_from_many_seeds(seed: int) -> None:
    run(seed)


class Damaged(Scenario):
    """Somebody cuts off the last records of a partition before the broker starts for the last time."""

    topic = EVENTS

    def before_last_start(self) -> None:
        fs = self.broker.fs
        segments = [(path, data) for path, data in fs.walk() if data and path.endswith(".log")]
        path, data = [each for each in segments if each[0].startswith(f"/data/{self.topic}-0/")][-1]
        fs.open(path, WRITE).truncate(len(data) - 1)


@pytest.mark.parametrize("topic", sample([EVENTS, LEDGER], fast=1))
def test_the_checks_notice_a_lost_record(topic: str) -> None:
    damaged = Damaged(1)
    damaged.topic = topic
    with pytest.raises(AssertionError, match=f"{topic}-0"):
        damaged.run()


@cache
def transcript(seed: int) -> list[Any]:
    return run(seed).transcript


def test_a_seed_gives_the_same_bytes_again() -> None:
    assert run(1).transcript == transcript(1)


def test_another_seed_gives_other_bytes() -> None:
    assert transcript(1) != transcript(2)


@pytest.mark.parametrize("seed", seeds(5, fast=1))
def test_a_power_cut_loses_nothing_that_is_flushed(seed: int) -> None:
    assert run(seed, PowerCuts).journal.acknowledged


@pytest.mark.parametrize("seed", seeds(5, fast=1))
def test_a_power_cut_loses_no_topic_and_no_partition(seed: int) -> None:
    run(seed, UnflushedPowerCuts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SOAK_SEEDS)
@pytest.mark.parametrize("scenario", [PowerCuts, UnflushedPowerCuts])
def test_power_cuts_from_many_seeds(scenario: type[Scenario], seed: int) -> None:
    run(seed, scenario)


class Emptied(UnflushedPowerCuts):
    """Somebody removes a partition that was flushed: it stays offline, and the check notices."""

    def before_last_start(self) -> None:
        fs = self.broker.fs
        recovery_points = read_offsets(fs, f"/data/{RECOVERY_POINT_CHECKPOINT}")
        known = {key for key, offset in recovery_points.items() if offset > 0}
        removed = next(path for path in fs.list_dir("/data") if path in map(str, known))
        fs.remove_tree(f"/data/{removed}")


@pytest.mark.slow
def test_the_checks_notice_a_partition_that_is_offline() -> None:
    with pytest.raises(AssertionError, match="error_code=5,"):
        Emptied(1).run()
