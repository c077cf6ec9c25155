from __future__ import annotations

import pickle
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from barnabas.model import TopicPartition
from barnabas.spark.topics.plan import OffsetRange, Restriction, bound, split, split_by_default

MS_2024 = 1_704_067_200_000


def a_range(size: int, partition: int = 0, start: int = 0) -> OffsetRange:
    return OffsetRange(TopicPartition("t", partition), start, start + size)


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [each.size for each in ranges]


def test_ranges_without_records_have_no_task() -> None:
    assert split([a_range(0), a_range(-5, 1), a_range(3, 2)]) == [a_range(3, 2)]


def test_a_range_is_one_task_unless_more_are_asked_for() -> None:
    ranges = [a_range(1_000_000), a_range(10, 1)]
    assert split(ranges) == ranges
    assert split(ranges, min_partitions=2) == ranges


def test_large_ranges_are_cut_before_small_ones() -> None:
    ranges = [a_range(1_000), a_range(1, 1), a_range(1, 2)]
    assert sizes(split(ranges, min_partitions=6)) == [250, 250, 250, 250, 1, 1]


def test_no_task_has_more_than_the_maximum() -> None:
    assert sizes(split([a_range(10), a_range(4, 1)], max_records_per_partition=4)) == [3, 3, 4, 4]


def test_a_maximum_and_a_number_of_tasks_together() -> None:
    ranges = [a_range(100)]
    assert len(split(ranges, min_partitions=2, max_records_per_partition=10)) == 10
    assert len(split(ranges, min_partitions=20, max_records_per_partition=50)) == 20


def test_more_tasks_than_records_are_no_tasks() -> None:
    assert sizes(split([a_range(3)], min_partitions=10)) == [1, 1, 1]


def test_by_default_every_core_has_something_to_do() -> None:
    assert len(split_by_default([a_range(50_000)], 2)) == 1
    assert sizes(split_by_default([a_range(400_000)], 2)) == [200_000, 200_000]
    assert len(split_by_default([a_range(5_000_000)], 2)) == 5
    assert split_by_default([], 2) == []


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10_000)), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(500, 5_000),
)
def test_tasks_have_every_offset_once_and_in_order(
    given_ranges: list[tuple[int, int]], least: int | None, most: int | None
) -> None:
    ranges = [a_range(size, number, start) for number, (start, size) in enumerate(given_ranges)]
    parts = split(ranges, min_partitions=least, max_records_per_partition=most)
    assert all(part.size > 0 for part in parts)
    assert most is None or all(part.size <= most for part in parts)
    for whole in ranges:
        position = whole.start_offset
        for part in parts:
            if part.partition == whole.partition:
                assert part.start_offset == position
                position = part.end_offset
        assert position == whole.end_offset


def test_a_task_is_pickled_small() -> None:
    pickled = pickle.dumps(OffsetRange(TopicPartition("t", 3), 5, 9, "id"))
    assert pickle.loads(pickled) == OffsetRange(TopicPartition("t", 3), 5, 9, "id")
    assert len(pickled) < 300


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def test_a_trigger_shares_its_bound_by_what_there_is() -> None:
    ends = {T0: 1_000, T1: 100, T2: 50}
    assert bound(110, {T0: 0, T1: 0, T2: 50}, ends) == {T0: 100, T1: 10, T2: 50}


def test_a_small_partition_is_not_left_out() -> None:
    assert bound(10, {T0: 0, T1: 5}, {T0: 1_000_000, T1: 6}) == {T0: 9, T1: 6}


def test_a_bound_above_what_there_is_does_not_matter() -> None:
    ends = {T0: 7, T1: 3}
    assert bound(2**62, {T0: 0, T1: 3}, ends) == ends
    assert bound(10, {T0: 7, T1: 3}, ends) == ends
    # A partition whose beginning is not known is not bounded.
    assert bound(1, {T0: 7}, ends) == ends


def test_filters_choose_topics_and_partitions() -> None:
    restriction = Restriction()
    assert restriction.push(In(("topic",), ("t", "u")))
    assert restriction.push(EqualTo(("topic",), "t"))
    assert restriction.push(In(("partition",), (0, 1, 2)))
    assert restriction.push(GreaterThan(("partition",), 0))
    assert restriction.push(IsNotNull(("partition",)))
    chosen = [TopicPartition(topic, number) for topic in "tu" for number in range(4)]
    assert [each for each in chosen if restriction.allows(each)] == [T1, T2]


def test_filters_narrow_offsets() -> None:
    restriction = Restriction()
    assert restriction.push(GreaterThanOrEqual(("offset",), 10))
    assert restriction.push(LessThan(("offset",), 20))
    assert restriction.narrow(a_range(100)) == a_range(10, start=10)
    assert restriction.narrow(a_range(5)).size == 0
    assert restriction.push(LessThanOrEqual(("offset",), 12))
    assert restriction.push(GreaterThan(("offset",), 11))
    assert restriction.narrow(a_range(100)) == a_range(1, start=12)
    assert restriction.push(EqualNullSafe(("offset",), 99))
    assert restriction.narrow(a_range(100)).size == 0


def test_filters_narrow_times() -> None:
    restriction = Restriction()
    assert restriction.first_timestamp_ms is None
    assert restriction.timestamp_us.is_open
    assert restriction.push(GreaterThan(("timestamp",), datetime(2024, 1, 1, tzinfo=UTC)))
    assert restriction.timestamp_us.low == MS_2024 * 1_000 + 1
    assert restriction.first_timestamp_ms == MS_2024 + 1
    assert restriction.push(LessThanOrEqual(("timestamp",), datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC)))
    assert restriction.timestamp_us.high == (MS_2024 + 1_000) * 1_000


def test_other_filters_are_left_to_spark() -> None:
    restriction = Restriction()
    for condition in [
        Not(EqualTo(("partition",), 1)),
        EqualTo(("value",), b"x"),
        EqualTo(("offset",), 1.5),
        EqualTo(("offset",), True),
        EqualTo(("headers", "key"), 1),
        In(("offset",), (1, 2)),
        In(("partition",), (1, None)),
        In(("topic",), ("t", None)),
        StringStartsWith(("topic",), "t"),
        IsNotNull(("timestamp",)),
        IsNotNull(("value",)),
        GreaterThan(("timestamp",), datetime(2024, 1, 1)),  # noqa: DTZ001
    ]:
        assert not restriction.push(condition)
    assert restriction == Restriction()
