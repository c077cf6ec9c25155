"""Pages of records: their memory, and gaps between offsets."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from barnabas.console.search.browse import read_page
from barnabas.console.search.render import render_record
from barnabas.model import TopicPartition
from barnabas.testing import Broker
from barnabas.views.offsets import LogRange

PARTITIONS = 4
RECORDS = 60
VALUE_BYTES = 200_000


def test_records_of_one_time_are_taken_in_turns(broker: Broker, new_topic: Callable[..., str]) -> None:
    """A partition with many records of the same millisecond does not hide the others."""
    topic = new_topic(partitions=2)
    with broker.producer() as producer:
        for number in range(40):
            producer.send(topic, b"x", partition=number % 2, timestamp_ms=1_700_000_000_000)
    page = read_page(
        {"bootstrap.servers": broker.bootstrap},
        {TopicPartition(topic, each): LogRange(first_offset=0, end_offset=20) for each in range(2)},
        lambda partition, record: render_record(topic, partition, record),
        records_max=4,
        is_backwards=True,
    )
    assert [(each.partition, each.offset) for each in page.records] == [(0, 19), (1, 19), (0, 18), (1, 18)]


@pytest.mark.parametrize("is_backwards", [True, False])
def test_a_page_of_large_records_takes_little_memory(
    broker: Broker, new_topic: Callable[..., str], is_backwards: bool
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    with broker.producer(batch_size=400_000) as producer:
        for number in range(PARTITIONS * RECORDS):
            producer.send(
                topic,
                b"%d" % number + bytes(VALUE_BYTES),
                partition=number % PARTITIONS,
                timestamp_ms=1_700_000_000_000 + number,
            )
    ranges = {
        TopicPartition(topic, each): LogRange(first_offset=0, end_offset=RECORDS)
        for each in range(PARTITIONS)
    }
    tracemalloc.start()
    try:
        page = read_page(
            {"bootstrap.servers": broker.bootstrap},
            ranges,
            lambda partition, record: render_record(topic, partition, record, limit_bytes=100),
            records_max=PARTITIONS * RECORDS // 2,
            is_backwards=is_backwards,
        )
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    count = PARTITIONS * RECORDS // 2
    times = [each.timestamp for each in page.records]
    assert times == sorted(times, reverse=is_backwards)
    assert len(times) == count
    # All records of the page alone have more.
    assert peak_bytes < count * VALUE_BYTES * 3 // 4
    assert page.warnings == ()
    left = LogRange(first_offset=0, end_offset=RECORDS // 2)
    if not is_backwards:
        left = LogRange(first_offset=RECORDS // 2, end_offset=RECORDS)
    assert page.next == dict.fromkeys(range(PARTITIONS), left)
