"""A mirror between two clusters: every record once, as it was, and consumers that go on where they stood."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import barnabas.spark
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import ConfigResource, IsolationLevel, NewTopic, ResourceType
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.model import TopicPartition
from barnabas.spark.exactly_once.sink import reset
from barnabas.spark.mirror.sink import MirrorSink, load_offset_map
from barnabas.testing import Broker
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, produce
from tests.consuming import read_up_to
from tests.waiting import Deadline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PARTITIONS = 3
IS_SOAK = os.environ.get("BARNABAS_SOAK") == "1"
WAIT_S = 120.0


@pytest.fixture(scope="module")
def target() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def write(bootstrap: str, topic: str, count: int, start: int = 0, partitions: int = PARTITIONS) -> None:
    """Records with and without key, value and headers, times that go back and forth, a transaction that is aborted."""
    with (
        Producer(bootstrap_servers=bootstrap) as plain,
        Producer(bootstrap_servers=bootstrap, transactional_id=f"writes-{topic}") as transactional,
    ):
        transactional.init_transactions()
        for number in range(start, start + count):
            if number % 50 == 7:
                plain.flush()
                transactional.begin_transaction()
                transactional.send(topic, b"aborted", partition=number % partitions).result(60)
                transactional.abort_transaction()
            plain.send(
                topic,
                None if number % 11 == 0 else b"" if number % 11 == 1 else b"value-%d" % number,
                None if number % 5 == 0 else b"" if number % 5 == 1 else b"key-%d" % number,
                partition=number % partitions,
                timestamp_ms=1_700_000_000_000 + number * 37 % 1000,
                headers=[("n", b"%d" % number), ("none", None), ("n", b"")] if number % 3 == 0 else None,
            )


def decided_ends(bootstrap: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of partitions, once no transaction is open there: Apache Kafka writes markers after it has answered."""
    deadline = Deadline(WAIT_S)
    with Admin(bootstrap_servers=bootstrap) as admin:
        while True:
            ends = {each: listed.offset or 0 for each, listed in admin.list_offsets(partitions).items()}
            stable = admin.list_offsets(partitions, isolation=IsolationLevel.READ_COMMITTED)
            if ends == {each: listed.offset or 0 for each, listed in stable.items()}:
                return ends
            deadline.check("a transaction stays open")
            time.sleep(0.05)


def records(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> dict[int, list[tuple[Any, ...]]]:
    """What a consumer of committed records reads, by partition, in its order, without offsets."""
    chosen = [TopicPartition(topic, number) for number in range(partitions)]
    ends = decided_ends(bootstrap, chosen)
    found: dict[int, list[tuple[Any, ...]]] = {number: [] for number in range(partitions)}
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(chosen)
        for each in read_up_to(consumer, ends):
            found[each.partition].append((each.key, each.value, each.timestamp_ms, each.headers))
    return found


def writer(
    spark: SparkSession, source: str, topic: str, sink: MirrorSink, checkpoint: Path, **options: Any
) -> DataStreamWriter:
    frame = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", source)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", True)
        .options(**options)
        .load()
    )
    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))


def mirror(
    spark: SparkSession, source: str, topic: str, sink: MirrorSink, checkpoint: Path, **options: Any
) -> None:
    """Copies what is there, and ends."""
    query = writer(spark, source, topic, sink, checkpoint, **options).trigger(availableNow=True).start()
    assert query.awaitTermination(int(WAIT_S))


@contextmanager
def mirroring(
    spark: SparkSession, source: str, topic: str, sink: MirrorSink, checkpoint: Path, **options: Any
) -> Iterator[StreamingQuery]:
    """Copies what there is and what comes, until the end of the block."""
    query = (
        writer(spark, source, topic, sink, checkpoint, **options)
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


def wait_for(query: StreamingQuery, is_reached: Callable[[], bool]) -> None:
    deadline = Deadline(WAIT_S)
    while not is_reached():
        assert query.isActive, query.exception()
        deadline.check("the mirror does not get there")
        time.sleep(0.05)


def wait_until_without_topics(query: StreamingQuery) -> None:
    """Until a batch is done for which there was no topic to read."""
    wait_for(
        query,
        lambda: any(each["sources"][0]["endOffset"] in ({}, "{}") for each in query.recentProgress),
    )


def wait_until_mirrored(query: StreamingQuery, target: str, topic: str, counts: list[int]) -> None:
    """Until the mirror's partitions have so many records, and no transaction is open."""
    wait_for(
        query,
        lambda: [len(each) for each in records(target, topic, len(counts)).values()] == counts,
    )


def end_of(bootstrap: str, topic: str, number: int) -> int:
    """0 as long as there is no such partition."""
    partition = TopicPartition(topic, number)
    with Admin(bootstrap_servers=bootstrap) as admin:
        if number >= len(admin.describe_topics(topic)[topic].partitions):
            return 0
        return admin.list_offsets([partition])[partition].offset or 0


def commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_offsets(group, offsets)


def check_mirror(spark: SparkSession, source: str, target: str, topic: str, folder: Path) -> None:
    barnabas.spark.register(spark)
    group = f"readers-of-{topic}"
    copy = f"copy.{topic}"
    with Admin(bootstrap_servers=source) as admin:
        admin.create_topics([NewTopic(name=topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})])
    write(source, topic, 400)
    checkpoint = folder / "checkpoint"
    options = {
        "checkpoint": str(checkpoint),
        "name": f"mirror-{topic}",
        "rename": "copy.{topic}",
        "groups": "readers-.*",
        "group_sync_interval_ms": 0,
    }
    with MirrorSink(
        {"kafka.bootstrap.servers": source},
        {"kafka.bootstrap.servers": target},
        **options,  # type: ignore[arg-type]
    ) as sink:
        mirror(spark, source, topic, sink, checkpoint)
        assert records(target, copy) == records(source, topic)
        with Admin(bootstrap_servers=target) as admin:
            resource = ConfigResource(ResourceType.TOPIC, copy)
            assert admin.describe_configs(resource)[resource]["retention.ms"].value == "-1"
        # Partitions are added here, and there; the reader has read a part.
        with Admin(bootstrap_servers=source) as admin:
            admin.create_partitions({topic: PARTITIONS + 1})
        write(source, topic, 300, start=400, partitions=PARTITIONS + 1)
        read_up_to = {TopicPartition(topic, number): 60 for number in range(PARTITIONS)}
        commit(source, group, read_up_to)
        mirror(spark, source, topic, sink, checkpoint)
    expected = records(source, topic, PARTITIONS + 1)
    assert records(target, copy, PARTITIONS + 1) == expected
    # The group goes on over there at the record that it has not read here, or before.
    with Admin(bootstrap_servers=target) as admin:
        there = admin.list_group_offsets(group)
    offset_map = load_offset_map({"bootstrap.servers": target}, f"mirror-{topic}.offset-map")
    for partition, offset in read_up_to.items():
        found = offset_map.translate(partition, offset)
        assert found is not None
        assert there[found[0]].offset == found[1]
        left_here = remaining(source, partition, offset)
        left_there = remaining(target, *found)
        assert left_there[-len(left_here) :] == left_here
        assert len(left_there) <= len(left_here) + 20


def remaining(bootstrap: str, partition: TopicPartition, offset: int) -> list[tuple[Any, ...]]:
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        found = read_up_to(consumer, decided_ends(bootstrap, [partition]))
    return [(each.key, each.value, each.timestamp_ms) for each in found]


def test_topics_are_mirrored_with_their_groups(
    spark: SparkSession, broker: Broker, target: Broker, topic: str, tmp_path: Path
) -> None:
    check_mirror(spark, broker.bootstrap, target.bootstrap, topic, tmp_path)


def test_a_mirror_without_transactions_keeps_order_and_offsets_too(
    spark: SparkSession, broker: Broker, target: Broker, topic: str, tmp_path: Path
) -> None:
    """It runs on while partitions are added, to a topic that had fewer from the beginning."""
    barnabas.spark.register(spark)
    broker.create_topics({topic: PARTITIONS})
    target.create_topics({topic: 1})
    write(broker.bootstrap, topic, 100)
    with MirrorSink(
        {"kafka.bootstrap.servers": broker.bootstrap},
        {"kafka.bootstrap.servers": target.bootstrap},
        checkpoint=str(tmp_path),
        name=f"mirror-{topic}",
        exactly_once=False,
    ) as sink:
        options = {"kafka.metadata.max.age.ms": "100"}
        with mirroring(spark, broker.bootstrap, topic, sink, tmp_path, **options) as query:
            wait_for(query, lambda: bool(query.recentProgress))
            with broker.admin() as admin:
                admin.create_partitions({topic: PARTITIONS + 1})
            write(broker.bootstrap, topic, 100, start=100, partitions=PARTITIONS + 1)
            expected = records(broker.bootstrap, topic, PARTITIONS + 1)
            wait_for(query, lambda: end_of(target.bootstrap, topic, PARTITIONS) == len(expected[PARTITIONS]))
            query.processAllAvailable()
    assert records(target.bootstrap, topic, PARTITIONS + 1) == expected
    offset_map = load_offset_map({"bootstrap.servers": target.bootstrap}, f"mirror-{topic}.offset-map")
    partition = TopicPartition(topic, 0)
    end = end_of(broker.bootstrap, topic, 0)
    assert offset_map.translate(partition, end) == (partition, len(expected[0]))


def test_a_compacted_topic_is_mirrored_with_its_gaps(
    spark: SparkSession, target: Broker, topic: str, tmp_path: Path
) -> None:
    """Among its records is one without a time, which no producer writes: it gets the time of the copy."""
    barnabas.spark.register(spark)
    count, keys = 300, 7
    with Broker(log_cleaner_backoff_ms=20) as source:
        with source.admin() as admin:
            configs = {
                "cleanup.policy": "compact",
                "segment.bytes": "2000",
                "min.cleanable.dirty.ratio": "0.01",
            }
            admin.create_topics({topic: 1}, configs=configs)
        with RawClient(source.port) as client:
            assert produce(client, topic, batch(b"0", timestamp=-1)).error_code == 0
        with source.producer() as producer:
            # So the offset of a record is what its value says.
            for number in range(1, count):
                producer.send(topic, b"%d" % number, b"%d" % (number % keys), partition=0)
                producer.flush()
        deadline = Deadline(WAIT_S)
        while len(left := records(source.bootstrap, topic, 1)[0]) > 100:
            deadline.check(f"the cleaner has left {len(left)} records")
            time.sleep(0.05)
        began_ms = int(time.time() * 1000)
        with MirrorSink(
            {"kafka.bootstrap.servers": source.bootstrap},
            {"kafka.bootstrap.servers": target.bootstrap},
            checkpoint=str(tmp_path),
            name=f"mirror-{topic}",
        ) as sink:
            mirror(spark, source.bootstrap, topic, sink, tmp_path, maxOffsetsPerTrigger=160)
    # The copy is compacted too, and the last record of a key is never removed.
    with target.consumer(auto_offset_reset="earliest") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        found = read_up_to(consumer, consumer.end_offsets(partition))
    assert {each.key: each.value for each in found} == {each[0]: each[1] for each in left}
    (timeless,) = [each for each in found if each.key == b"key-0"]
    assert timeless.timestamp_ms >= began_ms
    offset_map = load_offset_map({"bootstrap.servers": target.bootstrap}, f"mirror-{topic}.offset-map")
    for offset in range(count + 1):
        translated = offset_map.translate(TopicPartition(topic, 0), offset)
        assert translated is not None
        meant = [each.offset for each in found if int(each.value or b"") >= offset]
        assert translated[1] <= min(meant, default=found[-1].offset + 1)


def values_from_the_group(broker: Broker, group: str, partition: TopicPartition) -> list[bytes]:
    with broker.admin() as admin:
        offset = admin.list_group_offsets(group)[partition].offset
    return [value for _, value, _ in remaining(broker.bootstrap, partition, offset)]


@pytest.mark.skipif(not IS_SOAK, reason="BARNABAS_SOAK=1 runs it")
def test_a_source_that_is_made_anew_is_mirrored_behind_what_there_was(
    spark: SparkSession, broker: Broker, target: Broker, topic: str, tmp_path: Path
) -> None:
    barnabas.spark.register(spark)
    partition, group = TopicPartition(topic, 0), f"readers-of-{topic}"
    checkpoint = tmp_path / "checkpoint"

    def fill(count: int) -> None:
        broker.create_topics({topic: 1})
        with broker.producer() as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number, partition=0)

    with MirrorSink(
        {"kafka.bootstrap.servers": broker.bootstrap},
        {"kafka.bootstrap.servers": target.bootstrap},
        checkpoint=str(checkpoint),
        name=f"mirror-{topic}",
        groups=group,
    ) as sink:
        target.create_topics({topic: 1})
        fill(100)
        options = {"kafka.metadata.max.age.ms": "100", "failOnDataLoss": False}
        with mirroring(spark, broker.bootstrap, topic, sink, checkpoint, **options) as query:
            wait_until_mirrored(query, target.bootstrap, topic, [100])
            with broker.admin() as admin:
                admin.delete_topics([topic])
            wait_until_without_topics(query)
            fill(40)
            wait_until_mirrored(query, target.bootstrap, topic, [140])
            query.processAllAvailable()
        commit(broker.bootstrap, group, {partition: 30})
    read_next = [b"%d" % number for number in range(30, 40)]
    assert values_from_the_group(target, group, partition) == read_next
    # A mirror that is begun again copies all of it once more, and readers go on in that copy.
    shutil.rmtree(checkpoint)
    name = f"mirror-{topic}"
    reset({"bootstrap.servers": target.bootstrap}, transactional_id=name, group=name)
    with MirrorSink(
        {"kafka.bootstrap.servers": broker.bootstrap},
        {"kafka.bootstrap.servers": target.bootstrap},
        checkpoint=str(checkpoint),
        name=name,
        groups=group,
    ) as sink:
        mirror(spark, broker.bootstrap, topic, sink, checkpoint)
    assert values_from_the_group(target, group, partition) == read_next


@pytest.mark.peer
@pytest.mark.parametrize(
    "to_apache_kafka",
    [
        pytest.param(True, id="to Apache Kafka"),
        pytest.param(
            False,
            id="from Apache Kafka",
            marks=pytest.mark.skipif(not IS_SOAK, reason="BARNABAS_SOAK=1 runs it the other way round too"),
        ),
    ],
)
def test_apache_kafka_is_mirrored_and_a_mirror(
    spark: SparkSession, broker: Broker, apache_kafka: str, topic: str, tmp_path: Path, to_apache_kafka: bool
) -> None:
    ends = (broker.bootstrap, apache_kafka)
    source, target = ends if to_apache_kafka else reversed(ends)
    check_mirror(spark, source, target, topic, tmp_path)
