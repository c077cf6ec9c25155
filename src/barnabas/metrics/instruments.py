"""Counters and histograms for the hot path: counting adds an integer to an attribute or to an element of a list."""

from __future__ import annotations

from collections.abc import Iterable


class Counter:
    """A number that only grows. Callers add to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """How many observations fell below each bound."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        # Most observations are small, and so are the indexes of their buckets.
        index = 0
        for bound in self._bounds:
            if value <= bound:
                break
            index += 1
        self._counts[index] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def quantile(self, fraction: float) -> float:
        """The upper bound of the bucket in which that fraction of all observations is reached; 0 if there are none."""
        wanted = fraction * self.count
        seen = 0
        for bound, count in zip((*self._bounds, self._bounds[-1]), self._counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return bound
        return 0.0

    def samples(self) -> Iterable[tuple[str, str, float]]:
        """Suffix, extra label and value of each line."""
        cumulative = 0
        for bound, count in zip(self._bounds, self._counts, strict=False):
            cumulative += count
            yield "_bucket", f'le="{bound:g}"', cumulative
        yield "_bucket", 'le="+Inf"', self.count
        yield "_sum", "", self.total
        yield "_count", "", self.count
