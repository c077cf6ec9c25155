"""Random histories: what was committed is visible as a whole, what was not never is, and nothing stays open."""

from __future__ import annotations

import pytest

from tests.transactions.world import World

STEPS = 600


def run_history(seed: int) -> None:
    world = World(seed)
    try:
        for _ in range(STEPS):
            world.step()
            world.check()
        world.settle()
        world.check()
        world.check_visible()
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(25))
def test_random_producers(seed: int) -> None:
    run_history(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(1_000, 3_000, 200))
def test_many_histories(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 200):
        try:
            run_history(seed)
        except Exception as error:
            error.add_note(f"in the history of seed {seed}")
            raise
