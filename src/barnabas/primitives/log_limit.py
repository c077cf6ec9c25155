"""A bound on the rate of similar log lines.

Peers can cause log lines, for example by invalid frames or rejected connections. A million such lines are one fact.
Lines of one kind (the same format string, with any arguments) pass unchanged up to a burst and then up to a rate. The
next line that passes after that states how many were omitted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

BURST: Final = 100
# There are as many kinds as there are places that log. Kinds beyond this number count as one.
KINDS_MAX: Final = 1_000


class _Kind:
    __slots__ = ("left", "refilled_s", "suppressed")

    def __init__(self, left: float, now_s: float) -> None:
        self.left = left
        self.refilled_s = now_s
        self.suppressed = 0


class LogLimit(logging.Filter):
    """A filter for a handler. `lines_per_second` of 0 lets everything through."""

    def __init__(
        self, lines_per_second: float, monotonic_s: Callable[[], float], *, burst: int = BURST
    ) -> None:
        super().__init__()
        self._rate = lines_per_second
        self._burst = burst
        self._monotonic_s = monotonic_s
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if self._rate <= 0:
            return True
        now_s = self._monotonic_s()
        kind = self._kind(record, now_s)
        kind.left = min(kind.left + (now_s - kind.refilled_s) * self._rate, self._burst)
        kind.refilled_s = now_s
        if kind.left < 1.0:
            kind.suppressed += 1
            return False
        kind.left -= 1.0
        if kind.suppressed:
            record.msg = f"{record.getMessage()} ({kind.suppressed} more like this suppressed)"
            record.args = None
            kind.suppressed = 0
        return True

    def _kind(self, record: logging.LogRecord, now_s: float) -> _Kind:
        key = (record.name, str(record.msg))
        if key not in self._kinds and len(self._kinds) >= KINDS_MAX:
            key = ("", "")
        return self._kinds.setdefault(key, _Kind(self._burst, now_s))
