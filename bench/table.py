"""Shared parts of the benchmarks: contenders measured in turn, and tables of plain text.

Machines change speed during a measurement, so contenders alternate, round by round, and are compared by ratio.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

# More calls than this in a round cannot be distinguished from a clock that stands still.
MAX_CALLS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Seconds for one call, over all rounds."""

    best_s: float
    median_s: float

    @property
    def per_second(self) -> float:
        return 1 / self.best_s


def measure(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int = 7, round_s: float = 0.05
) -> dict[str, Measurement]:
    """Times each contender in turn, `rounds` times; in a round it is called for about `round_s`."""
    calls = {name: _calls_in(call, round_s) for name, call in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in contenders.items():
                gc.collect()
                times[name].append(_time(call, calls[name]) / calls[name])
    finally:
        if was_enabled:
            gc.enable()
    return {
        name: Measurement(best_s=min(spent), median_s=statistics.median(spent))
        for name, spent in times.items()
    }


def _calls_in(call: Callable[[], object], round_s: float) -> int:
    calls = 1
    while calls < MAX_CALLS:
        spent_s = _time(call, calls)
        if spent_s >= round_s / 4:
            return max(1, round(calls * round_s / spent_s))
        calls *= 4
    return MAX_CALLS


def _time(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


def duration(seconds: float) -> str:
    """Three digits and the unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def ratio(value: float) -> str:
    return f"{value:.0f}×" if value >= 100 else f"{value:.3g}×"


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


class Table:
    """Rows under headings; the first column stands left, the others right."""

    def __init__(self, title: str, headings: Sequence[str]) -> None:
        self._title = title
        self._rows: list[Sequence[str]] = [headings]

    def add(self, *cells: object) -> None:
        assert len(cells) == len(self._rows[0])
        self._rows.append([str(cell) for cell in cells])

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        lines = [self._line(row, widths) for row in self._rows]
        lines.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join((self._title, "", *lines))

    def print(self) -> None:
        print(f"\n{self}", flush=True)

    @staticmethod
    def _line(row: Sequence[str], widths: Sequence[int]) -> str:
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "  ".join(cells).rstrip()
