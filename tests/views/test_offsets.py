from __future__ import annotations

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import OffsetSpec
from barnabas.errors import UnknownTopicOrPartition
from barnabas.model import TopicPartition
from barnabas.views.offsets import LogRange, available_offsets, log_ranges


@pytest.mark.slow
def test_the_ranges_of_partitions(admin: Admin, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    admin.delete_records({first: 2})
    assert log_ranges(admin, [first, second]) == {
        first: LogRange(first_offset=2, end_offset=3),
        second: LogRange(first_offset=0, end_offset=2),
    }
    assert log_ranges(admin, []) == {}
    with pytest.raises(UnknownTopicOrPartition):
        log_ranges(admin, [TopicPartition(topic, 2)])


def test_an_offset_outside_a_range_becomes_its_nearer_end() -> None:
    offsets = LogRange(first_offset=2, end_offset=5)
    assert [offsets.nearest(offset) for offset in (0, 2, 3, 5, 9)] == [2, 2, 3, 5, 5]


@pytest.mark.slow
def test_partitions_without_an_offset_are_left_out(admin: Admin, topic: str) -> None:
    first, second, missing = (TopicPartition(topic, number) for number in range(3))
    latest = int(OffsetSpec.LATEST)
    assert available_offsets(admin, {first: latest, second: latest, missing: latest}) == {first: 3, second: 2}
    # By time: the records of the second partition are of 1001 and 1003.
    assert available_offsets(admin, {first: 1_004, second: 1_004}) == {first: 2}
    assert available_offsets(admin, {missing: latest}) == {}
    assert available_offsets(admin, {}) == {}
