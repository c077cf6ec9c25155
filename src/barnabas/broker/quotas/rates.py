"""Rates over a sliding window, measured as in Apache Kafka, and the throttle time of clients that exceed one.

A rate is kept in samples of a window each (one second by default), the newest still filling. It is the sum of all
samples divided by the time that they cover, but at least by the time of all full windows: a burst at the beginning does
not count as a high rate.
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
        """A negative amount takes back an earlier one."""
        if now_ms - self._starts_ms[self._current] >= self._window_ms:
            self._current = (self._current + 1) % self._windows
            self._starts_ms[self._current] = now_ms
            self._amounts[self._current] = 0.0
        self._amounts[self._current] += amount

    def measure(self, now_ms: int) -> tuple[float, float]:
        """The amount per second, and the measured time in milliseconds."""
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
        """The time until the rate is down to the limit (an amount per second) if nothing is added."""
        rate, covered_ms = self.measure(now_ms)
        if rate <= limit:
            return 0
        return round((rate - limit) / limit * covered_ms)
