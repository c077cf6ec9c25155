"""The simulated world itself: time, jobs, death."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

import pytest

from tests.simulation.world import START_MS, Stuck, World


def test_time_jumps_to_the_next_timer() -> None:
    world = World(1)
    process = world.process("one")
    seen: list[tuple[str, int]] = []

    async def sleep(name: str, duration_s: float) -> None:
        await asyncio.sleep(duration_s)
        seen.append((name, process.clock.now_ms() - START_MS))

    async def run() -> None:
        await asyncio.gather(sleep("day", 86_400), sleep("hour", 3_600), sleep("moment", 0.001))

    world.run(process, run())
    assert seen == [("moment", 1), ("hour", 3_600_000), ("day", 86_400_000)]
    world.close()


def test_a_world_in_which_nothing_can_happen_says_so() -> None:
    world = World(1)
    process = world.process("one")

    async def wait_for_ever() -> None:
        await process.loop.create_future()

    with pytest.raises(Stuck, match="nothing is left"):
        world.run(process, wait_for_ever())
    world.close()


def test_a_world_in_which_the_same_happens_for_ever_says_so() -> None:
    world = World(1)

    async def spin() -> None:
        while True:  # noqa: ASYNC110 - it waits for nothing
            await asyncio.sleep(0)

    with pytest.raises(Stuck, match="stands still"):
        world.run(world.process("one"), spin())
    world.close()


def test_one_thread_runs_its_jobs_in_order() -> None:
    world = World(1)
    process = world.process("one")
    seen: list[int] = []

    async def run() -> None:
        executor = process.new_executor(1, "thread")
        jobs = [process.loop.run_in_executor(executor, seen.append, number) for number in range(20)]
        assert seen == []
        await asyncio.gather(*jobs)

    world.run(process, run())
    assert seen == list(range(20))
    assert world.now_s > 0
    world.close()


def test_a_job_may_wait_for_another() -> None:
    world = World(1)
    process = world.process("one")

    def outer(inner: Executor) -> int:
        return inner.submit(int, "7").result() + 1

    async def run() -> int:
        inner = process.new_executor(1, "inner")
        result: int = await process.loop.run_in_executor(process.new_executor(1, "outer"), outer, inner)
        return result

    assert world.run(process, run()) == 8
    world.close()


def test_a_killed_process_does_nothing_more() -> None:
    world = World(1)
    victim, witness = world.process("victim"), world.process("witness")
    seen: list[str] = []

    async def work() -> None:
        while True:
            await asyncio.sleep(1)
            await victim.loop.run_in_executor(executor, seen.append, "job")

    executor = victim.new_executor(1, "thread")
    victim.loop.create_task(work())
    world.run(witness, asyncio.sleep(1.5))
    victim.kill()
    world.run(witness, asyncio.sleep(10))
    assert seen == ["job"]
    world.close()


def test_a_failure_that_nobody_handles_ends_the_run() -> None:
    world = World(1)
    process = world.process("one")

    def fail() -> None:
        raise ZeroDivisionError

    process.loop.call_later(1, fail)
    with pytest.raises(ZeroDivisionError):
        world.run(process, asyncio.sleep(2))
    world.close()
