"""Long requests in turns: each has the event loop for about a millisecond, then whoever waits has it.

A request that names thousands of partitions is worked on in parts. Of all parts that wait, of all requests, one is done
each time around the loop, so however many such requests there are, others wait for one part at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.clock import Clock

log = logging.getLogger(__name__)

TURN_NS: Final = 1_000_000
# So many elements are done without looking at the clock, and so many at once: it is a small request.
STEP: Final = 16
AT_ONCE: Final = 64

Part = Callable[[], object]


class Turns:
    __slots__ = ("_clock", "_is_scheduled", "_loop", "_parts")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._parts: deque[Part] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, part: Part) -> None:
        """Does a part of something long when its turn comes. It takes a millisecond at most, and adds what is left."""
        self._parts.append(part)
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

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        part = self._parts.popleft()
        if self._parts:
            self._schedule()
        try:
            part()
        except Exception:
            log.exception("a part of a long request failed")


def _come(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
