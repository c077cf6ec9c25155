"""Metrics of a running broker, in the text form that Prometheus reads.

On the hot path, counting adds an integer to an attribute or to an element of a list. All expensive work (names, labels,
sums, gauges) is done at a scrape.

Names are those of Kafka's own metrics as Prometheus users know them: `kafka_server_brokertopicmetrics_bytesin_total`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from barnabas.metrics.instruments import Counter, Histogram

# Upper bounds in seconds, from a tenth of a millisecond to ten seconds: wide enough for a fetch that waits.
DURATION_BOUNDS_S: Final = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
SIZE_BOUNDS_BYTES: Final = tuple(float(4**power) for power in range(3, 15))

# A label may come from a client (a topic name): values beyond this number of series are counted together.
MAX_SERIES_A_FAMILY: Final = 20_000


Reading = Callable[[], float | Iterable[tuple[Mapping[str, str], float]]]


class CounterFamily:
    """All counters with one name, distinguished by their labels."""

    def __init__(self, name: str, help_text: str, label_names: tuple[str, ...]) -> None:
        self.name = name
        self.help_text = help_text
        self._label_names = label_names
        self._series: dict[tuple[str, ...], Counter] = {}

    def labels(self, *values: str) -> Counter:
        """The counter of these labels; keep it, do not look it up for each event."""
        assert len(values) == len(self._label_names)
        counter = self._series.get(values)
        if counter is None:
            if len(self._series) >= MAX_SERIES_A_FAMILY:
                values = tuple("other" for _ in values)
            counter = self._series.setdefault(values, Counter())
        return counter

    def remove(self, *values: str) -> None:
        self._series.pop(values, None)

    def lines(self) -> Iterable[str]:
        for values, counter in list(self._series.items()):
            yield f"{self.name}{_label_text(self._label_names, values)} {counter.value}"


class HistogramFamily:
    """All histograms with one name, distinguished by their labels."""

    def __init__(
        self, name: str, help_text: str, label_names: tuple[str, ...], bounds: tuple[float, ...]
    ) -> None:
        self.name = name
        self.help_text = help_text
        self._label_names = label_names
        self._bounds = bounds
        self._series: dict[tuple[str, ...], Histogram] = {}

    def labels(self, *values: str) -> Histogram:
        assert len(values) == len(self._label_names)
        histogram = self._series.get(values)
        if histogram is None:
            if len(self._series) >= MAX_SERIES_A_FAMILY:
                values = tuple("other" for _ in values)
            histogram = self._series.setdefault(values, Histogram(self._bounds))
        return histogram

    def lines(self) -> Iterable[str]:
        for values, histogram in list(self._series.items()):
            # The lines of one histogram agree with each other.
            for suffix, extra, value in list(histogram.samples()):
                yield f"{self.name}{suffix}{_label_text(self._label_names, values, extra)} {_number(value)}"


class Gauge:
    """A value that is looked up when metrics are read: one number, or one for each set of labels."""

    def __init__(self, name: str, help_text: str, reading: Reading) -> None:
        self.name = name
        self.help_text = help_text
        self._reading = reading

    def lines(self) -> Iterable[str]:
        found = self._reading()
        if isinstance(found, (int, float)):
            yield f"{self.name} {_number(found)}"
            return
        for labels, value in found:
            yield f"{self.name}{_label_text(tuple(labels), tuple(labels.values()))} {_number(value)}"


class Total(Gauge):
    """A counter that is kept elsewhere and looked up when metrics are read."""


FamilyT = TypeVar("FamilyT", CounterFamily, HistogramFamily, Gauge, Total)


class Registry:
    def __init__(self) -> None:
        self._families: dict[str, CounterFamily | HistogramFamily | Gauge] = {}

    def counter(self, name: str, help_text: str, *label_names: str) -> CounterFamily:
        return self._add(CounterFamily(name, help_text, label_names))

    def histogram(
        self, name: str, help_text: str, *label_names: str, bounds: tuple[float, ...] = DURATION_BOUNDS_S
    ) -> HistogramFamily:
        return self._add(HistogramFamily(name, help_text, label_names, bounds))

    def gauge(self, name: str, help_text: str, reading: Reading) -> Gauge:
        return self._add(Gauge(name, help_text, reading))

    def total(self, name: str, help_text: str, reading: Reading) -> Total:
        return self._add(Total(name, help_text, reading))

    def render(self) -> str:
        return "".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Everything, in the text exposition format 0.0.4. Things may be counted between two lines."""
        for family in self._families.values():
            yield f"# HELP {family.name} {family.help_text}\n"
            yield f"# TYPE {family.name} {_TYPE_NAMES[type(family)]}\n"
            for line in family.lines():
                yield f"{line}\n"

    def _add(self, family: FamilyT) -> FamilyT:
        assert family.name not in self._families, f"{family.name} is there already"
        self._families[family.name] = family
        return family


_TYPE_NAMES: Final = {
    CounterFamily: "counter",
    HistogramFamily: "histogram",
    Gauge: "gauge",
    Total: "counter",
}


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))


def _label_text(names: tuple[str, ...], values: tuple[str, ...], extra: str = "") -> str:
    pairs = [f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)]
    if extra:
        pairs.append(extra)
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
