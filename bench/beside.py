"""A broker compared with Apache Kafka: rows with their targets, results of each round, and their table.

Ratios are taken within a round and their median counts: a temporary slowdown of the machine affects both.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from statistics import median
from typing import Final

from bench import load
from bench.table import Table, ratio, verdict

KAFKA: Final = "Apache Kafka"
OURS: Final = "Barnabas"
HOST: Final = "Barnabas, 2 brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement, or the sum of several, of one contender, with its targets."""

    title: str
    unit: str
    measurements: tuple[str, ...]
    contender: str = OURS
    # What the contender is compared with.
    base: str = KAFKA
    digits: int = 0
    value_max: float | None = None
    ratio_min: float | None = None
    ratio_max: float | None = None

    @property
    def target(self) -> str:
        asked = (
            f"≤ {self.value_max:g} {self.unit}" if self.value_max is not None else "",
            f"≥ {self.ratio_min:g}×" if self.ratio_min is not None else "",
            f"≤ {self.ratio_max:.2g}×" if self.ratio_max is not None else "",
        )
        return ", ".join(filter(None, asked))

    def is_met(self, value: float, to_base: float) -> bool:
        return (
            (self.value_max is None or value <= self.value_max)
            and (self.ratio_min is None or to_base >= self.ratio_min)
            and (self.ratio_max is None or to_base <= self.ratio_max)
        )

    def show(self, value: float) -> str:
        return f"{value:,.{self.digits}f} {self.unit}"


class Results:
    """The results, by measurement and contender, one value per round; and the cores that the load kept busy."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._load_cores: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, measurement: str, contender: str, value: float, load_cores: float | None = None) -> None:
        self._values[measurement, contender].append(value)
        if load_cores is not None:
            self._load_cores[measurement, contender].append(load_cores)

    def of(self, row: Row, contender: str) -> list[float]:
        rounds = zip(*(self._values[measurement, contender] for measurement in row.measurements), strict=True)
        return [sum(values) for values in rounds]

    def cores_of_load(self, measurement: str, contender: str) -> list[float]:
        return self._load_cores[measurement, contender]

    def load_cores(self, row: Row) -> str:
        """For Kafka's result, or that of another base, and for ours."""
        cores = [self._load_cores[row.measurements[0], contender] for contender in (row.base, row.contender)]
        return " / ".join(f"{median(each):.2f}" for each in cores if each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The amount of data of a load, its time, and the processor time of the load and of the broker."""

    amount: float
    spent_s: float
    load_cpu_s: float
    broker_cpu_s: float = 0.0

    @property
    def per_second(self) -> float:
        return self.amount / self.spent_s

    @property
    def load_cores(self) -> float:
        return self.load_cpu_s / self.spent_s

    @property
    def broker_cores(self) -> float:
        return self.broker_cpu_s / self.spent_s


def report(title: str, rows: Sequence[Row], results: Results, rounds: int) -> bool:
    """Prints the table; whether all targets are met."""
    table = Table(
        f"{title}, {cores()} cores, medians of {rounds} rounds",
        ("", KAFKA, OURS, "ratio", "target", "", "load's cores"),
    )
    all_met = True
    for row in rows:
        base, ours = results.of(row, row.base), results.of(row, row.contender)
        # Some rows are ours alone, and some count what should not happen at all.
        has_ratio = bool(base) and all(base)
        to_base = median([one / other for one, other in zip(ours, base, strict=True)]) if has_ratio else nan
        met = row.is_met(median(ours), to_base)
        all_met &= met
        table.add(
            row.title,
            row.show(median(base)) if base else "",
            row.show(median(ours)),
            ratio(to_base) if has_ratio else "",
            row.target,
            verdict(met) if row.target else "",
            results.load_cores(row),
        )
    table.print()
    return all_met


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tell(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def measure_load(work: Callable[[], float], *broker_pids: int) -> Measured:
    broker_cpu_s = load.cpu_seconds(*broker_pids)
    start_cpu_s, start_s = time.process_time(), time.perf_counter()
    amount = work()
    return Measured(
        amount=amount,
        spent_s=time.perf_counter() - start_s,
        load_cpu_s=time.process_time() - start_cpu_s,
        broker_cpu_s=load.cpu_seconds(*broker_pids) - broker_cpu_s,
    )
