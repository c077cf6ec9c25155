"""Time that comes in from outside: the machine's clock, or one that a test advances."""

from __future__ import annotations

import time
from typing import Final

from mypy_extensions import mypyc_attr

# Looked up once: every request asks for the time, three times.
_time_ns: Final = time.time_ns
_monotonic_ns: Final = time.monotonic_ns


# A class and not a protocol: compiled code calls the methods of a class directly.
@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    __slots__ = ()

    def now_ms(self) -> int:
        """Wall-clock time: milliseconds since 1970. It may jump."""
        raise NotImplementedError

    def monotonic_ns(self) -> int:
        """A time that never goes back, for durations."""
        raise NotImplementedError


class SystemClock(Clock):
    __slots__ = ()

    def now_ms(self) -> int:
        return _time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        return _monotonic_ns()


class ManualClock(Clock):
    """A clock that stands still until a test advances it."""

    __slots__ = ("_elapsed_ns", "_start_ms")

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._elapsed_ns = 0

    def now_ms(self) -> int:
        return self._start_ms + self._elapsed_ns // 1_000_000

    def monotonic_ns(self) -> int:
        return self._elapsed_ns

    def advance_ms(self, duration_ms: float) -> None:
        assert duration_ms >= 0
        self._elapsed_ns += int(duration_ms * 1_000_000)
