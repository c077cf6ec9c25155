"""An average and a maximum of the last half minute to minute, as in Kafka's own metrics: two windows of 30 seconds."""

from __future__ import annotations

from typing import Final

WINDOW_S: Final = 30.0


class Samples:
    """Written by one thread, once a request or a batch."""

    __slots__ = (
        "_count",
        "_count_before",
        "_max",
        "_max_before",
        "_name",
        "_sum",
        "_sum_before",
        "_window_end_s",
    )

    def __init__(self, name: str) -> None:
        """The metrics are `name-avg` and `name-max`."""
        self._name = name
        self._window_end_s = 0.0
        self._count = self._count_before = 0
        self._sum = self._sum_before = 0.0
        self._max = self._max_before = 0.0

    def add(self, value: float, now_s: float) -> None:
        if now_s >= self._window_end_s:
            self._turn(now_s)
        self._count += 1
        self._sum += value
        if value > self._max:
            self._max = value

    def metrics(self, now_s: float) -> dict[str, float]:
        """Zeros if there were no values."""
        count, total, maximum = 0, 0.0, 0.0
        # A window that has ended is the one before, and the one before that is over.
        if now_s < self._window_end_s + WINDOW_S:
            count, total, maximum = self._count, self._sum, self._max
        if now_s < self._window_end_s:
            count += self._count_before
            total += self._sum_before
            maximum = max(maximum, self._max_before)
        return {f"{self._name}-avg": total / count if count else 0.0, f"{self._name}-max": maximum}

    def _turn(self, now_s: float) -> None:
        if now_s < self._window_end_s + WINDOW_S:
            self._count_before, self._sum_before, self._max_before = self._count, self._sum, self._max
            self._window_end_s += WINDOW_S
        else:
            self._count_before, self._sum_before, self._max_before = 0, 0.0, 0.0
            self._window_end_s = now_s + WINDOW_S
        self._count, self._sum, self._max = 0, 0.0, 0.0
