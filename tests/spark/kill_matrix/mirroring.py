"""What a mirror is fed with, and what has to be on its other side whatever was killed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.client.producer.producer import Producer
from barnabas.model import TopicPartition
from barnabas.spark.mirror.sink import load_offset_map
from tests.spark.kill_matrix.driver import Job
from tests.spark.kill_matrix.running import Server
from tests.spark.sink_reading import committed_records

PARTITIONS: Final = 3


def feed_records(server: Server, topic: str, numbers: range) -> None:
    """Records with their number in a header, some without key or value, whose times go back and forth."""
    with Producer(bootstrap_servers=server.bootstrap) as producer:
        for number in numbers:
            producer.send(
                topic,
                None if number % 11 == 0 else b"" if number % 11 == 1 else b"value-%d" % number,
                None if number % 5 == 0 else b"key-%d" % (number % 13),
                partition=number % PARTITIONS,
                timestamp_ms=1_700_000_000_000 + number * 37 % 1000,
                headers=[("id", b"%d" % number), ("none", None), ("twice", b"1"), ("twice", b"2")],
            )


def commit_readers(server: Server, job: Job, offset: int) -> None:
    with Admin(bootstrap_servers=server.bootstrap) as admin:
        admin.alter_group_offsets(
            f"readers-of-{job.name}",
            {TopicPartition(job.source, number): offset for number in range(PARTITIONS)},
        )


def check_mirrored(here: Server, there: Server, job: Job, wanted: range, readers: int) -> None:
    """Each record once, as it was and where it was; the map and the group tell of each where it stands."""
    sources, targets = by_partition(here, job.source), by_partition(there, job.out)
    ids = Counter(dict(record.headers)["id"] for records in sources.values() for record in records)
    assert ids == Counter(b"%d" % number for number in wanted)
    assert {number: [content(each) for each in records] for number, records in targets.items()} == {
        number: [content(each) for each in records] for number, records in sources.items()
    }
    offset_map = load_offset_map({"bootstrap.servers": there.bootstrap}, f"{job.name}.offset-map")
    with Admin(bootstrap_servers=there.bootstrap) as admin:
        committed = admin.list_group_offsets(f"readers-of-{job.name}")
    for number, records in sources.items():
        partition, copy = TopicPartition(job.source, number), TopicPartition(job.out, number)
        offsets = [record.offset for record in targets[number]]
        for place, record in enumerate(records):
            found = offset_map.translate(partition, record.offset)
            assert found is not None
            assert (found[0], bisect_left(offsets, found[1])) == (copy, place), (record, found, offsets)
        assert bisect_left(offsets, committed[copy].offset) == readers


def by_partition(server: Server, topic: str) -> dict[int, list[ConsumerRecord]]:
    found: dict[int, list[ConsumerRecord]] = {number: [] for number in range(PARTITIONS)}
    for record in committed_records(server.bootstrap, topic):
        found[record.partition].append(record)
    return found


def content(record: ConsumerRecord) -> tuple[Any, ...]:
    return record.key, record.value, record.timestamp_ms, record.headers
