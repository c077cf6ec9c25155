"""The last hour of measurements, in memory: rings of numbers with common times."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

SAMPLES_MAX: Final = 360
SERIES_MAX: Final = 1_000
NONE: Final = float("nan")


class History:
    """Series by name, for several threads.

    A series that is no longer measured goes on with gaps, and is dropped when it has only gaps.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times_ms = array("d")
        self._series: dict[str, array[float]] = {}

    def add(self, time_ms: int, values: Mapping[str, float]) -> None:
        with self._lock:
            self._add(time_ms, values)

    def _add(self, time_ms: int, values: Mapping[str, float]) -> None:
        self._times_ms.append(time_ms)
        count = len(self._times_ms)
        for name in values:
            if name not in self._series and len(self._series) < SERIES_MAX:
                self._series[name] = array("d", [NONE]) * (count - 1)
        for name, series in self._series.items():
            series.append(values.get(name, NONE))
        if count > SAMPLES_MAX:
            del self._times_ms[0]
            for name, series in list(self._series.items()):
                del series[0]
                if all(each != each for each in series):
                    del self._series[name]

    def read(self, names: Sequence[str]) -> dict[str, object]:
        """Times in ms, and the values of each series; null in gaps."""
        with self._lock:
            return {
                "times_ms": [int(each) for each in self._times_ms],
                "series": {
                    name: [None if each != each else round(each, 3) for each in self._series[name]]
                    for name in names
                    if name in self._series
                },
            }
