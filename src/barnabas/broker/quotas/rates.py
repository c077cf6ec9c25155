"""Rates over a sliding window, measured as Apache Kafka does, and the time to wait after exceeding one.

A rate is kept in samples of one window each (one second by default); the newest is still filling. It is the sum of all
samples over the time that they cover, and that time is never taken to be shorter than all full windows together: a
burst at the very beginning does not count as a high rate.
"""

from __future__ import annotations

from typing import Final

WINDOW_MS: Final = 1_000
WINDOWS: Final = 11


class Rate:
    __slots__ = ("_amounts", "_current", "_starts_ms", "_window_ms", "_windows")

    def __init__(self, now_ms: int, *, window_ms: int = WINDOW_MS, windows: int = WINDOWS) -> None:
        assert windows >= 2
        self._window_ms = window_ms
        self._windows = windows
        self._starts_ms = [now_ms] + [-1] * (windows - 1)
        self._amounts = [0.0] * windows
        self._current = 0

    def record(self, amount: float, now_ms: int) -> None:
        """A negative amount reverts a recorded amount that was not used."""
        if now_ms - self._starts_ms[self._current] >= self._window_ms:
            self._current = (self._current + 1) % self._windows
            self._starts_ms[self._current] = now_ms
            self._amounts[self._current] = 0.0
        self._amounts[self._current] += amount

    def measure(self, now_ms: int) -> tuple[float, float]:
        """Amount a second, and the milliseconds over which it was measured."""
        total = 0.0
        oldest_ms = now_ms
        expired_before_ms = now_ms - self._window_ms * self._windows
        for index in range(self._windows):
            start_ms = self._starts_ms[index]
            if start_ms >= 0 and start_ms >= expired_before_ms:
                total += self._amounts[index]
                oldest_ms = min(oldest_ms, start_ms)
        covered_ms = now_ms - oldest_ms
        missing_windows = self._windows - 1 - covered_ms // self._window_ms
        if missing_windows > 0:
            covered_ms += missing_windows * self._window_ms
        return total * 1_000 / covered_ms, covered_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to wait until the rate is down to the limit (an amount a second) if nothing more comes."""
        rate, covered_ms = self.measure(now_ms)
        if rate <= limit:
            return 0
        return round((rate - limit) / limit * covered_ms)
