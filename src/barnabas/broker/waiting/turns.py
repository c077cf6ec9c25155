"""Long requests in turns: each has the event loop for about a millisecond, then whoever waits has it.

A request that names thousands of partitions is worked on in parts. Of all parts that wait, of all requests, one is done
each time around the loop, so however many such requests there are, others wait for one part at most. A large request is
begun when those that have begun are done, or wait for something else: what it is taken apart to takes memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from barnabas.clock import Clock

log = logging.getLogger(__name__)

TURN_NS: Final = 1_000_000
# So many elements are done without looking at the clock, and so many at once: it is a small request.
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
        """Does a part of something long when its turn comes. It takes a millisecond at most, and adds what is left."""
        self._parts.append(part)
        self._schedule()

    def begin(self, part: Part) -> None:
        """Begins something long when nothing else is under way."""
        self._beginnings.append(part)
        self._schedule()

    def add_later(self, delay_s: float, part: Part) -> None:
        self._loop.call_later(delay_s, self.add, part)

    def end_ns(self) -> int:
        """When a turn that begins now is over."""
        return self._clock.monotonic_ns() + TURN_NS

    def is_over(self, end_ns: int) -> bool:
        return self._clock.monotonic_ns() >= end_ns

    def next(self) -> asyncio.Future[None]:
        """For coroutines: done when their turn has come."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self.add(partial(_come, turn))
        return turn

    def map(
        self, items: Sequence[T], work: Callable[[T], R], finish: Callable[[list[R]], S]
    ) -> S | Coroutine[Any, Any, S]:
        """What `finish` makes of the results for all items: at once if they are few, else a coroutine, in turns.

        A handler returns either. It may be that things change between one item and the next.
        """
        if len(items) <= AT_ONCE:
            return finish([work(item) for item in items])
        return self._map_in_turns(items, work, finish)

    async def _map_in_turns(
        self, items: Sequence[T], work: Callable[[T], R], finish: Callable[[list[R]], S]
    ) -> S:
        results: list[R] = []
        end_ns = self.end_ns()
        for item in items:
            results.append(work(item))
            if self.is_over(end_ns):
                await self.next()
                end_ns = self.end_ns()
        await self.next()
        return finish(results)

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
