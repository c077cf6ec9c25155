"""After a crash at any moment the log is what it was at some moment after its last flush; see histories.py.

BARNABAS_CRASH_HISTORIES sets how many histories are tried, BARNABAS_CRASH_SEED the first seed: a failure names its own.
"""

from __future__ import annotations

import logging
import os

import pytest

from tests.log.histories import History
from tests.sampling import cases

STEPS = 40
HISTORIES = int(os.environ.get("BARNABAS_CRASH_HISTORIES", "1000"))
FIRST_SEED = int(os.environ.get("BARNABAS_CRASH_SEED", "0"))
# A deleted segment that a power cut brought back without its aborted transactions.
FOUND_SEEDS = [904949]
# In as many parts as let several workers share them.
PARTS = 10


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of recoveries have thousands of warnings; only of a history that runs alone are they worth keeping."""
    caplog.set_level(logging.DEBUG if HISTORIES == 1 else logging.ERROR, logger="barnabas.log")


def run(seed: int) -> None:
    history: History | None = None
    try:
        history = History(seed)
        history.run(STEPS)
    except Exception as error:
        steps = [] if history is None else history.steps
        raise AssertionError(
            f"history {seed} failed (BARNABAS_CRASH_SEED={seed} BARNABAS_CRASH_HISTORIES=1 runs it alone): {error!r}\n"
            + "\n".join(steps)
        ) from error


@pytest.mark.parametrize("seed", FOUND_SEEDS)
def test_histories_that_once_failed(seed: int) -> None:
    run(seed)


def test_a_sample_of_histories() -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + min(HISTORIES, cases(60, fast=20))):
        run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_histories(part: int) -> None:
    for seed in range(FIRST_SEED + part, FIRST_SEED + HISTORIES, PARTS):
        run(seed)
