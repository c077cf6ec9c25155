"""Random histories: what was committed is visible as a whole, what was not never is, and nothing stays open."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.sampling import seeds
from tests.transactions.world import World

STEPS: Final = 600
HISTORIES: Final = 20_000 if os.environ.get("BARNABAS_SOAK") == "1" else 400


def run_history(seed: int) -> None:
    world = World(seed)
    try:
        for _ in range(STEPS):
            world.step()
            world.check()
            if world.shell.uncommitted:
                world.check_committed()
        world.settle()
        world.check()
        world.check_visible()
    finally:
        world.close()


@pytest.mark.parametrize("seed", seeds(25, fast=3))
def test_random_producers(seed: int) -> None:
    run_history(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(1_000, 1_000 + HISTORIES, HISTORIES // 10))
def test_many_histories(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + HISTORIES // 10):
        try:
            run_history(seed)
        except Exception as error:
            error.add_note(f"in the history of seed {seed}")
            raise
