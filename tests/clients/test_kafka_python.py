"""kafka-python against a running broker: producing, consuming assigned partitions, administration.

Of the compressions it has gzip by itself; the others need packages that nothing else here needs.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.clients import kafka_python_through_restarts
from tests.clients.broker_process import BrokerProcess, restarting
from tests.sampling import sample
from tests.waiting import Deadline

with warnings.catch_warnings():
    # It loads its schemas in a way that Python means to give up.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.codec import has_lz4, has_snappy, has_zstd
    from kafka.errors import (
        MessageSizeTooLargeError,
        OffsetOutOfRangeError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )

# It also leaves sockets for the collector, see `collect_sockets`.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

WAIT_S = 60
COMPRESSIONS = [None, "gzip"]
COMPRESSIONS += [
    name for name, is_there in (("snappy", has_snappy), ("lz4", has_lz4), ("zstd", has_zstd)) if is_there()
]


@pytest.fixture(autouse=True)
def collect_sockets() -> Iterator[None]:
    """What the client has left open goes here, not in the middle of a test that takes such warnings seriously."""
    yield
    gc.collect()


def producing(broker: BrokerProcess, **settings: Any) -> closing[Any]:
    return closing(KafkaProducer(bootstrap_servers=broker.address, **settings))


def consuming(broker: BrokerProcess, topic: str, **settings: Any) -> closing[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.address,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings},
    )
    consumer.assign([TopicPartition(topic, 0)])
    return closing(consumer)


def take(consumer: Any, count: int) -> list[Any]:
    received: list[Any] = []
    deadline = Deadline()
    while len(received) < count:
        deadline.check(f"{len(received)} of {count} records")
        polled = consumer.poll(timeout_ms=1_000, max_records=count - len(received))
        received += [record for records in polled.values() for record in records]
    return received


def read(broker: BrokerProcess, topic: str, count: int, **settings: Any) -> list[Any]:
    with consuming(broker, topic, **settings) as consumer:
        return take(consumer, count)


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as client:
        yield client


def create(admin: Any, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": settings}})


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("acks", sample(["all", 0, 1], fast=1))
def test_every_compression_with_every_acks(
    broker: BrokerProcess, admin: Any, topic: str, compression: str | None, acks: int | str
) -> None:
    create(admin, topic)
    expected = [b"%d %s" % (number, b"value " * 20) for number in range(200)]
    with producing(
        broker, compression_type=compression, acks=acks, linger_ms=20, enable_idempotence=False
    ) as producer:
        sent = [producer.send(topic, value, key=value[:3]) for value in expected]
        producer.flush(timeout=WAIT_S)
        found = [each.get(WAIT_S) for each in sent]
    if acks != 0:
        assert [each.offset for each in found] == list(range(200))
    received = read(broker, topic, 200)
    assert [(record.offset, record.key, record.value) for record in received] == [
        (offset, value[:3], value) for offset, value in enumerate(expected)
    ]


def test_an_idempotent_producer(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic)
    with producing(broker, batch_size=500) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(500)]
        assert [each.get(WAIT_S).offset for each in sent] == list(range(500))
    received = read(broker, topic, 500, isolation_level="read_committed")
    assert [record.value for record in received] == [b"%d" % number for number in range(500)]


def test_headers_nulls_and_timestamps(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b"")]
    with producing(broker) as producer:
        producer.send(topic, b"value", headers=headers, timestamp_ms=1_600_000_000_123).get(WAIT_S)
        producer.send(topic, None, key=b"tombstone").get(WAIT_S)
        producer.send(topic, b"", key=b"").get(WAIT_S)
    first, second, third = read(broker, topic, 3)
    assert list(first.headers) == headers
    assert (first.timestamp, first.timestamp_type, first.key) == (1_600_000_000_123, 0, None)
    assert (second.key, second.value, list(second.headers)) == (b"tombstone", None, [])
    assert (third.key, third.value) == (b"", b"")


def test_large_records(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic, max_message_bytes="20000000")
    large = [bytes([number]) * 5_000_000 for number in range(2)]
    with producing(broker, max_request_size=20_000_000) as producer:
        for value in large:
            producer.send(topic, value).get(WAIT_S)
    received = read(broker, topic, 2)
    assert [record.value for record in received] == large


def test_a_record_that_is_too_large_for_the_topic(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic, max_message_bytes="1000")
    with producing(broker, enable_idempotence=False) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(topic, bytes(2_000)).get(WAIT_S)
        assert producer.send(topic, b"small").get(WAIT_S).offset == 0


def test_where_a_consumer_begins(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic)
    partition = TopicPartition(topic, 0)
    with producing(broker) as producer, consuming(broker, topic) as consumer:
        for number in range(10):
            producer.send(topic, b"%d" % number, timestamp_ms=1_600_000_000_000 + 1_000 * number).get(WAIT_S)
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        found = consumer.offsets_for_times({partition: 1_600_000_004_500})
        assert (found[partition].offset, found[partition].timestamp) == (5, 1_600_000_005_000)
        none = consumer.offsets_for_times({partition: int(time.time() * 1_000) + 1_000_000})
        assert none == {partition: None}
        assert [record.value for record in take(consumer, 2)] == [b"0", b"1"]
        consumer.seek(partition, 8)
        assert [record.value for record in take(consumer, 2)] == [b"8", b"9"]
        consumer.seek_to_beginning()
        assert [record.value for record in take(consumer, 1)] == [b"0"]
        consumer.seek_to_end()
        assert consumer.position(partition) == 10
        producer.send(topic, b"new").get(WAIT_S)
        assert [record.value for record in take(consumer, 1)] == [b"new"]


def test_an_offset_out_of_range(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic)
    partition = TopicPartition(topic, 0)
    with producing(broker) as producer:
        producer.send(topic, b"only").get(WAIT_S)
    with consuming(broker, topic, auto_offset_reset="none") as consumer:
        consumer.seek(partition, 99)
        with pytest.raises(OffsetOutOfRangeError):
            take(consumer, 1)
    with consuming(broker, topic) as consumer:
        consumer.seek(partition, 99)
        assert [record.value for record in take(consumer, 1)] == [b"only"]


def test_a_topic_comes_into_being_when_it_is_produced_to(broker: BrokerProcess, topic: str) -> None:
    with producing(broker) as producer:
        found = producer.send(topic, b"first").get(WAIT_S)
    assert (found.partition, found.offset) == (0, 0)
    assert [record.value for record in read(broker, topic, 1)] == [b"first"]


def test_topics_and_partitions_are_created_and_deleted(admin: Any, topic: str) -> None:
    create(admin, topic, partitions=2)
    [described] = admin.describe_topics([topic])
    assert (described["name"], len(described["partitions"])) == (topic, 2)
    with pytest.raises(TopicAlreadyExistsError):
        create(admin, topic)
    admin.create_partitions({topic: 4})
    [described] = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_records_are_deleted(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic)
    with producing(broker) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number).get(WAIT_S)
    partition = TopicPartition(topic, 0)
    deleted = admin.delete_records({partition: 6})
    assert deleted[partition]["low_watermark"] == 6
    assert [record.value for record in read(broker, topic, 4)] == [b"6", b"7", b"8", b"9"]


def test_the_cluster_is_described(broker: BrokerProcess, admin: Any) -> None:
    described = admin.describe_cluster()
    [node] = described["brokers"]
    assert node["broker_id"] == described["controller_id"]
    assert f"{node['host']}:{node['port']}" == broker.address


def test_a_topic_deleted_and_made_again_is_empty(broker: BrokerProcess, admin: Any, topic: str) -> None:
    create(admin, topic)
    with producing(broker) as producer:
        producer.send(topic, b"old").get(WAIT_S)
    admin.delete_topics([topic])
    create(admin, topic)
    with producing(broker) as producer:
        assert producer.send(topic, b"new").get(WAIT_S).offset == 0
    assert [record.value for record in read(broker, topic, 1)] == [b"new"]


@pytest.mark.slow
def test_a_producer_and_a_consumer_outlive_restarts_of_the_broker(broker: BrokerProcess, topic: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", kafka_python_through_restarts.__name__, broker.address, topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        with restarting(broker, times=2):
            pass
        said, _ = program.communicate("enough\n", timeout=3 * WAIT_S)
    finally:
        program.kill()
        program.communicate()
    assert program.returncode == 0, said
    assert said.endswith(" records\n")
