"""Long work in turns: nobody waits for more than a part of it."""

from __future__ import annotations

import asyncio

from barnabas.broker.waiting.turns import TURN_NS, Turns
from barnabas.clock import ManualClock, SystemClock

WAIT_S = 30


def test_one_part_each_time_around_the_loop() -> None:
    async def run() -> None:
        turns = Turns(asyncio.get_running_loop(), SystemClock())
        done: list[str] = []

        def work(name: str, parts: int) -> None:
            done.append(name)
            if parts > 1:
                turns.add(lambda: work(name, parts - 1))

        turns.add(lambda: work("a", 3))
        turns.add(lambda: work("b", 2))
        for _ in range(5):
            done.append("|")
            await asyncio.sleep(0)
        assert "".join(done).strip("|") == "a|b|a|b|a"
        assert len(turns) == 0

    asyncio.run(run())


def test_what_has_begun_comes_before_what_has_not() -> None:
    async def run() -> None:
        turns = Turns(asyncio.get_running_loop(), SystemClock())
        done: list[str] = []

        def first() -> None:
            done.append("first")
            turns.add(lambda: done.append("first goes on"))

        turns.begin(first)
        turns.begin(lambda: done.append("second"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert done == ["first", "first goes on", "second"]

    asyncio.run(run())


def test_a_part_that_fails_does_not_keep_the_others() -> None:
    async def run() -> None:
        turns = Turns(asyncio.get_running_loop(), SystemClock())

        def fail() -> None:
            raise ValueError("a fault")

        turns.add(fail)
        async with asyncio.timeout(WAIT_S):
            await turns.next()

    asyncio.run(run())


def test_a_turn_ends_by_the_clock() -> None:
    async def run() -> None:
        clock = ManualClock()
        turns = Turns(asyncio.get_running_loop(), clock)
        end_ns = turns.end_ns()
        assert not turns.is_over(end_ns)
        clock.advance_ms(TURN_NS / 1_000_000)
        assert turns.is_over(end_ns)

    asyncio.run(run())


def test_items_are_done_in_turns() -> None:
    async def run() -> None:
        clock = ManualClock()
        turns = Turns(asyncio.get_running_loop(), clock)

        def work(item: int) -> int:
            clock.advance_ms(0.25)
            return 2 * item

        def total(results: list[int]) -> int:
            return sum(results)

        others = 0
        task = asyncio.ensure_future(turns.map(range(80), work, total))
        while not task.done():
            await asyncio.sleep(0)
            others += 1
        assert await task == sum(range(80)) * 2
        # Four items to a turn, and others between one turn and the next.
        assert others >= 80 / 4

    asyncio.run(run())


def test_parts_of_many_items() -> None:
    async def run() -> None:
        turns = Turns(asyncio.get_running_loop(), SystemClock())
        seen: list[list[int]] = []
        others: list[int] = []

        async def take_all() -> None:
            async for part in turns.parts(list(range(7)), 3):
                turns.add(lambda: others.append(len(seen)))
                seen.append(list(part))

        await take_all()
        assert seen == [[0, 1, 2], [3, 4, 5], [6]]
        # Those that came first have had their turns.
        assert others == [1, 2]

    asyncio.run(run())
