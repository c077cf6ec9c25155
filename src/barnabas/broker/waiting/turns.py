"""Long requests in turns: each has the event loop for about a millisecond at a time.

A request that names thousands of partitions is done in parts. Of all parts of all such requests, one is done in each
iteration of the loop: however many there are, other requests wait for one part at most. A large request is begun when
those before it are done, or wait for something else, because a decoded request takes memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from barnabas.clock import Clock

log = logging.getLogger(__name__)

TURN_NS: Final = 1_000_000
# How many elements are done without looking at the clock, and how many at once, since it is a small request.
STEP: Final = 16
AT_ONCE: Final = 64

Part = Callable[[], object]
T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


class Turns:
    __slots__ = ("_beginnings", "_clock", "_is_scheduled", "_loop", "_parts")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._parts: deque[Part] = deque()
        self._beginnings: deque[Part] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._parts) + len(self._beginnings)

    def add(self, part: Part) -> None:
        """Does a part when its turn comes. A part takes a millisecond at most, and adds the rest as another part."""
        self._parts.append(part)
        self._schedule()

    def begin(self, part: Part) -> None:
        """Begins something long when nothing else is in progress."""
        self._beginnings.append(part)
        self._schedule()

    def add_later(self, delay_s: float, part: Part) -> None:
        self._loop.call_later(delay_s, self.add, part)

    def end_ns(self) -> int:
        """When a turn that begins now ends."""
        return self._clock.monotonic_ns() + TURN_NS

    def is_over(self, end_ns: int) -> bool:
        return self._clock.monotonic_ns() >= end_ns

    def next(self) -> asyncio.Future[None]:
        """For coroutines: done when their turn comes."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self.add(partial(_come, turn))
        return turn

    async def map(self, items: Sequence[T], work: Callable[[T], R], finish: Callable[[list[R]], S]) -> S:
        """The result of `finish` for the results of all items. State may change between one item and the next."""
        results: list[R] = []
        end_ns = self.end_ns()
        for item in items:
            results.append(work(item))
            if self.is_over(end_ns):
                await self.next()
                end_ns = self.end_ns()
        await self.next()
        return finish(results)

    async def parts(self, items: Sequence[T], size: int = AT_ONCE) -> AsyncIterator[Sequence[T]]:
        """The items, some at a time, each part after the first in a turn of its own."""
        for start in range(0, len(items), size):
            if start > 0:
                await self.next()
            yield items[start : start + size]

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        part = (self._parts or self._beginnings).popleft()
        if self._parts or self._beginnings:
            self._schedule()
        try:
            part()
        except Exception:
            log.exception("a part of a long request failed")


def _come(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
