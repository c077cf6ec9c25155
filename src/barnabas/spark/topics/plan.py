"""The input of a query as ranges of offsets: split for tasks, bounded for a trigger, narrowed by filters.

Nothing here talks to a broker.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from barnabas.model import TopicPartition
from barnabas.spark.topics.offsets import Offsets

# By default a batch is split so that a task has enough work to be worth its start, and no further.
DEFAULT_RECORDS_MIN: Final = 100_000
DEFAULT_RECORDS_MAX: Final = 1_000_000
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
MICROSECONDS_IN_MILLISECOND: Final = 1_000


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """Records of a partition from the start offset to the end offset (exclusive): the input of a task.

    The topic's id distinguishes a topic from one that was created again with the same name; None if it is unknown.
    """

    partition: TopicPartition
    start_offset: int
    end_offset: int
    topic_id: str | None = None

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset

    def between(self, start_offset: int, end_offset: int) -> OffsetRange:
        return OffsetRange(self.partition, start_offset, end_offset, self.topic_id)


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """The ranges with records, cut so that none is above the maximum and that there are about this many."""
    wanted = [each for each in ranges if each.size > 0]
    if max_records_per_partition is not None:
        wanted = [part for each in wanted for part in _cut(each, -(-each.size // max_records_per_partition))]
    if min_partitions is None or len(wanted) >= min_partitions:
        return wanted
    total = sum(each.size for each in wanted)
    small = [each for each in wanted if _share(each, total, min_partitions) == 1]
    rest = total - sum(each.size for each in small)
    rest_parts = max(min_partitions - len(small), 1)
    kept = set(map(id, small))
    return [
        part
        for each in wanted
        for part in _cut(each, 1 if id(each) in kept else _share(each, rest, rest_parts))
    ]


def split_by_default(ranges: Sequence[OffsetRange], cores: int) -> list[OffsetRange]:
    """The default for a batch: all cores have work, in parts that are worth a task."""
    total = sum(max(each.size, 0) for each in ranges)
    return split(
        ranges,
        min_partitions=max(min(cores, total // DEFAULT_RECORDS_MIN), 1),
        max_records_per_partition=DEFAULT_RECORDS_MAX,
    )


def _share(part: OffsetRange, total: int, parts: int) -> int:
    return max(math.floor(part.size / total * parts + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = min(parts, whole.size)
    bounds = [whole.start_offset + whole.size * part // parts for part in range(parts + 1)]
    return [whole.between(start, end) for start, end in pairwise(bounds)]


def bound(limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Offsets:
    """End offsets with about this many records before them, shared among partitions by their number of records."""
    sizes = {
        partition: end - starts[partition]
        for partition, end in ends.items()
        if partition in starts and end > starts[partition]
    }
    total = sum(sizes.values())
    bounded = dict(ends)
    for partition, size in sizes.items():
        share = limit * (size / total)
        # A partition with few records still makes progress.
        count = math.ceil(share) if share < 1 else math.floor(share)
        bounded[partition] = min(ends[partition], starts[partition] + count)
    return bounded


@dataclass(slots=True)
class Bounds:
    """The values that some filters leave, both ends inclusive."""

    low: int = INT64_MIN
    high: int = INT64_MAX

    def narrow(self, condition: Filter, value: int) -> bool:
        """Applies the condition; False if bounds cannot express it."""
        match condition:
            case EqualTo() | EqualNullSafe():
                low, high = value, value
            case GreaterThan():
                low, high = value + 1, INT64_MAX
            case GreaterThanOrEqual():
                low, high = value, INT64_MAX
            case LessThan():
                low, high = INT64_MIN, value - 1
            case LessThanOrEqual():
                low, high = INT64_MIN, value
            case _:
                return False
        self.low = max(self.low, low)
        self.high = min(self.high, high)
        return True

    @property
    def is_open(self) -> bool:
        return self.low == INT64_MIN and self.high == INT64_MAX


@dataclass(slots=True)
class Restriction:
    """The part of the topics that the filters of a query leave; other rows need not be read."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition: Bounds = field(default_factory=Bounds)
    offset: Bounds = field(default_factory=Bounds)
    timestamp_us: Bounds = field(default_factory=Bounds)

    def push(self, condition: Filter) -> bool:
        """Whether the condition is now part of the restriction, so that Spark need not look at it again."""
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        if len(path) != 1:
            return False
        column = path[0]
        if isinstance(condition, IsNotNull):
            return column in ("topic", "partition", "offset")
        value = getattr(condition, "value", None)
        if column == "topic":
            return self._push_topic(condition, value)
        if column == "partition" and isinstance(condition, In):
            return self._push_partitions(condition.value)
        if column in ("partition", "offset") and type(value) is int:
            return (self.partition if column == "partition" else self.offset).narrow(condition, value)
        if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
            return self.timestamp_us.narrow(condition, (value - _EPOCH) // _MICROSECOND)
        return False

    def _push_topic(self, condition: Filter, value: object) -> bool:
        if isinstance(condition, EqualTo | EqualNullSafe) and isinstance(value, str):
            names = frozenset({value})
        elif isinstance(condition, In) and all(isinstance(each, str) for each in condition.value):
            names = frozenset(condition.value)
        else:
            return False
        self.topics = names if self.topics is None else self.topics & names
        return True

    def _push_partitions(self, values: Iterable[object]) -> bool:
        numbers = [value for value in values if type(value) is int]
        if len(numbers) != len(list(values)):
            return False
        chosen = frozenset(numbers)
        self.partitions = chosen if self.partitions is None else self.partitions & chosen
        return True

    def allows(self, partition: TopicPartition) -> bool:
        return (
            (self.topics is None or partition.topic in self.topics)
            and (self.partitions is None or partition.partition in self.partitions)
            and self.partition.low <= partition.partition <= self.partition.high
        )

    def narrow(self, wanted: OffsetRange) -> OffsetRange:
        start = max(wanted.start_offset, self.offset.low)
        return wanted.between(start, max(min(wanted.end_offset, self.offset.high + 1), start))

    @property
    def first_timestamp_ms(self) -> int | None:
        """The first whole millisecond that is wanted; None if there is no bound."""
        low = self.timestamp_us.low
        return None if low == INT64_MIN else max(-(-low // MICROSECONDS_IN_MILLISECOND), 0)
