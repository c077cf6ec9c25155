"""A mirror between two clusters: every record once, as it was, and consumers that go on where they stood."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import barnabas.spark
from barnabas.client.admin import Admin
from barnabas.client.admin_results import ConfigResource, IsolationLevel, NewTopic, ResourceType
from barnabas.client.consumer import Consumer
from barnabas.client.producer import Producer
from barnabas.model import TopicPartition
from barnabas.spark.mirror import MirrorSink, load_offset_map
from barnabas.testing import Broker
from tests.client.consumer_servers import KafkaProcess
from tests.peers.kafka_peer import V4, PeerUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
IS_SOAK = os.environ.get("BARNABAS_SOAK") == "1"
WAIT_S = 120.0


@pytest.fixture(scope="module")
def target() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with KafkaProcess(tmp_path_factory.mktemp("kafka") / "data", V4) as running:
            yield running.address
    except PeerUnavailable as missing:
        pytest.skip(str(missing))


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
                None if number % 11 == 0 else b"value-%d" % number,
                None if number % 5 == 0 else b"key-%d" % number,
                partition=number % partitions,
                timestamp_ms=1_700_000_000_000 + number * 37 % 1000,
                headers=[("n", b"%d" % number), ("none", None)] if number % 3 == 0 else None,
            )


def decided_ends(bootstrap: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of partitions, once no transaction is open there: Apache Kafka writes markers after it has answered."""
    deadline_s = time.monotonic() + WAIT_S
    with Admin(bootstrap_servers=bootstrap) as admin:
        while True:
            ends = {each: listed.offset or 0 for each, listed in admin.list_offsets(partitions).items()}
            stable = admin.list_offsets(partitions, isolation=IsolationLevel.READ_COMMITTED)
            if ends == {each: listed.offset or 0 for each, listed in stable.items()}:
                return ends
            assert time.monotonic() < deadline_s, "a transaction stays open"
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
        deadline_s = time.monotonic() + WAIT_S
        while any(consumer.position(each) < ends[each] for each in chosen):
            assert time.monotonic() < deadline_s, "the consumer does not get to the end"
            for each in consumer.poll(1000):
                found[each.partition].append((each.key, each.value, each.timestamp_ms, each.headers))
    return found


def mirror(spark: SparkSession, source: str, topic: str, sink: MirrorSink, checkpoint: Path) -> None:
    """Copies what is there, and ends."""
    frame = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", source)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", True)
        .load()
    )
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(WAIT_S))


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
        end = decided_ends(bootstrap, [partition])[partition]
        found = []
        deadline_s = time.monotonic() + WAIT_S
        while consumer.position(partition) < end:
            assert time.monotonic() < deadline_s
            found += [(each.key, each.value, each.timestamp_ms) for each in consumer.poll(1000)]
    return found


def test_topics_are_mirrored_with_their_groups(
    spark: SparkSession, broker: Broker, target: Broker, topic: str, tmp_path: Path
) -> None:
    check_mirror(spark, broker.bootstrap, target.bootstrap, topic, tmp_path)


def test_a_mirror_without_transactions_keeps_order_and_offsets_too(
    spark: SparkSession, broker: Broker, target: Broker, topic: str, tmp_path: Path
) -> None:
    barnabas.spark.register(spark)
    broker.create_topics({topic: PARTITIONS})
    write(broker.bootstrap, topic, 100)
    with MirrorSink(
        {"kafka.bootstrap.servers": broker.bootstrap},
        {"kafka.bootstrap.servers": target.bootstrap},
        checkpoint=str(tmp_path),
        name=f"mirror-{topic}",
        exactly_once=False,
    ) as sink:
        mirror(spark, broker.bootstrap, topic, sink, tmp_path)
    assert records(target.bootstrap, topic) == records(broker.bootstrap, topic)
    offset_map = load_offset_map({"bootstrap.servers": target.bootstrap}, f"mirror-{topic}.offset-map")
    partition = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        end = admin.list_offsets([partition])[partition].offset
    assert end is not None
    assert offset_map.translate(partition, end) == (partition, len(records(broker.bootstrap, topic)[0]))


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
