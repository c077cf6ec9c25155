"""confluent-kafka (librdkafka) against a running broker: producing, consuming assigned partitions, administration."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.clients.broker_process import BrokerProcess, restarting
from tests.sampling import sample
from tests.waiting import Deadline

WAIT_S = 60
# That a broker is away for a moment is no news to print.
QUIET = {"log_level": 2}
COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Deliveries:
    """A producer that remembers what became of each record."""

    def __init__(self, broker: BrokerProcess, **settings: Any) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": broker.address,
                **QUIET,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.offsets: list[int | None] = []
        self.errors: list[KafkaError] = []

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.offsets.append(message.offset())

    def send(self, topic: str, value: bytes | None, **options: Any) -> None:
        self._producer.produce(topic, value, on_delivery=self._delivered, **options)
        self._producer.poll(0)

    def flush(self) -> list[int | None]:
        assert self._producer.flush(WAIT_S) == 0
        assert self.errors == []
        return self.offsets


def new_consumer(broker: BrokerProcess, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "assigned",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **QUIET,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def consume(consumer: Consumer, count: int, *, passing_errors: Collection[int] = ()) -> list[Message]:
    received: list[Message] = []
    deadline = Deadline()
    while len(received) < count:
        deadline.check(f"{len(received)} of {count} records")
        for message in consumer.consume(count - len(received), timeout=1):
            error = message.error()
            if error is None:
                received.append(message)
            else:
                assert error.code() in passing_errors, error
    return received


def read(
    broker: BrokerProcess, topic: str, count: int, *, partition: int = 0, offset: int = 0, **settings: Any
) -> list[Message]:
    consumer = new_consumer(broker, **settings)
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        return consume(consumer, count)
    finally:
        consumer.close()


def values(messages: Iterable[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address, **QUIET})


@pytest.fixture
def created(admin: AdminClient, topic: str) -> str:
    create(admin, topic)
    return topic


def create(admin: AdminClient, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
    admin.create_topics([new])[topic].result(WAIT_S)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("acks", sample(["all", "0", "1"], fast=1))
def test_every_compression_with_every_acks(
    broker: BrokerProcess, created: str, compression: str, acks: str
) -> None:
    producer = Deliveries(broker, compression_type=compression, acks=acks, linger_ms=20)
    expected = [b"%d %s" % (number, b"value " * 20) for number in range(300)]
    for value in expected:
        producer.send(created, value, key=value[:3])
    offsets = producer.flush()
    if acks != "0":
        assert offsets == list(range(300))
    received = read(broker, created, 300)
    assert values(received) == expected
    assert [message.key() for message in received] == [value[:3] for value in expected]
    assert [message.offset() for message in received] == list(range(300))


@pytest.mark.slow
def test_an_idempotent_producer(broker: BrokerProcess, created: str) -> None:
    producer = Deliveries(broker, enable_idempotence=True, batch_num_messages=7)
    for number in range(2_000):
        producer.send(created, b"%d" % number)
    assert producer.flush() == list(range(2_000))
    assert values(read(broker, created, 2_000)) == [b"%d" % number for number in range(2_000)]


@pytest.mark.slow
def test_two_idempotent_producers_at_once_do_not_disturb_each_other(
    broker: BrokerProcess, created: str
) -> None:
    producers = [Deliveries(broker, enable_idempotence=True) for _ in range(2)]
    for number in range(500):
        for name, producer in enumerate(producers):
            producer.send(created, b"%d %d" % (name, number))
    offsets = [offset for producer in producers for offset in producer.flush()]
    assert sorted(offset for offset in offsets if offset is not None) == list(range(1_000))
    received = [value or b"" for value in values(read(broker, created, 1_000))]
    for name in range(2):
        mine = [value for value in received if value.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, number) for number in range(500)]


def test_headers_nulls_and_timestamps(broker: BrokerProcess, created: str) -> None:
    producer = Deliveries(broker)
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)]
    producer.send(created, b"value", key=b"key", headers=headers, timestamp=1_600_000_000_123)
    producer.send(created, None, key=b"tombstone")
    producer.send(created, b"", key=b"")
    producer.send(created, None)
    producer.flush()
    first, second, third, fourth = read(broker, created, 4)
    assert first.headers() == headers
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1_600_000_000_123)
    assert (second.key(), second.value(), second.headers()) == (b"tombstone", None, None)
    assert (third.key(), third.value()) == (b"", b"")
    assert (fourth.key(), fourth.value()) == (None, None)


def test_append_time_where_the_topic_says_so(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, topic, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1_000)
    producer = Deliveries(broker)
    producer.send(topic, b"value", timestamp=1_600_000_000_123)
    producer.flush()
    [message] = read(broker, topic, 1)
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    # The broker runs on the same clock, which may be set back a little in between.
    assert before_ms - 60_000 <= timestamp <= before_ms + 3_600_000


def test_large_records(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    create(admin, topic, max_message_bytes="20000000")
    producer = Deliveries(broker, message_max_bytes=20_000_000)
    large = [bytes([number]) * 8_000_000 for number in range(3)]
    for value in large:
        producer.send(topic, value)
    producer.flush()
    assert values(read(broker, topic, 3, fetch_message_max_bytes=1_000_000)) == large


def test_a_record_that_is_too_large_for_the_topic(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    create(admin, topic, max_message_bytes="1000")
    producer = Deliveries(broker)
    producer.send(topic, bytes(2_000))
    producer.send(topic, b"small")
    assert producer._producer.flush(WAIT_S) == 0
    # Both records travel in one batch, or in two.
    assert {error.code() for error in producer.errors} == {KafkaError.MSG_SIZE_TOO_LARGE}


@pytest.mark.slow
def test_where_a_consumer_begins(broker: BrokerProcess, created: str) -> None:
    producer = Deliveries(broker)
    for number in range(10):
        producer.send(created, b"%d" % number, timestamp=1_600_000_000_000 + 1_000 * number)
    producer.flush()
    assert values(read(broker, created, 10, offset=OFFSET_BEGINNING)) == [b"%d" % n for n in range(10)]
    assert values(read(broker, created, 10, offset=-2, isolation_level="read_committed"))[0] == b"0"
    assert values(read(broker, created, 3, offset=7)) == [b"7", b"8", b"9"]

    consumer = new_consumer(broker)
    try:
        assert consumer.get_watermark_offsets(TopicPartition(created, 0), timeout=WAIT_S) == (0, 10)
        asked = [
            TopicPartition(created, 0, 1_600_000_004_500),
            TopicPartition(created, 0, 1_700_000_000_000),
        ]
        found = [consumer.offsets_for_times([each], timeout=WAIT_S)[0] for each in asked]
        assert [each.error for each in found] == [None, None]
        assert [each.offset for each in found] == [5, OFFSET_END]

        consumer.assign([TopicPartition(created, 0, 5)])
        assert values(consume(consumer, 2)) == [b"5", b"6"]
        consumer.seek(TopicPartition(created, 0, 1))
        assert values(consume(consumer, 2)) == [b"1", b"2"]

        consumer.assign([TopicPartition(created, 0, OFFSET_END)])
        producer.send(created, b"new")
        # The end is looked up when the consumer polls: whatever it finds there, nothing older comes.
        deadline = Deadline()
        received: list[Message] = []
        while not received:
            deadline.check("a record after the end")
            received = consumer.consume(1, timeout=0.2)
            if not received:
                producer.send(created, b"new")
        assert values(received) == [b"new"]
    finally:
        consumer.close()


def test_an_offset_out_of_range(broker: BrokerProcess, created: str) -> None:
    producer = Deliveries(broker)
    producer.send(created, b"only")
    producer.flush()
    consumer = new_consumer(broker)
    try:
        consumer.assign([TopicPartition(created, 0, 99)])
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
    finally:
        consumer.close()
    assert values(read(broker, created, 1, offset=99, auto_offset_reset="earliest")) == [b"only"]


def test_partitions_of_a_topic_keep_their_own_order(
    broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    create(admin, topic, partitions=5)
    producer = Deliveries(broker, acks="all")
    for number in range(500):
        producer.send(topic, b"%d" % number, partition=number % 5)
    producer.flush()
    consumer = new_consumer(broker)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(5)])
        received = consume(consumer, 500)
    finally:
        consumer.close()
    for partition in range(5):
        mine = [message.value() for message in received if message.partition() == partition]
        assert mine == [b"%d" % number for number in range(partition, 500, 5)]


def test_a_topic_comes_into_being_when_it_is_produced_to(broker: BrokerProcess, topic: str) -> None:
    producer = Deliveries(broker)
    producer.send(topic, b"first")
    assert producer.flush() == [0]
    assert values(read(broker, topic, 1)) == [b"first"]


def test_the_cluster_and_its_topics_are_described(admin: AdminClient, created: str) -> None:
    cluster = admin.describe_cluster().result(WAIT_S)
    assert [node.id for node in cluster.nodes] == [cluster.controller.id]
    metadata = admin.list_topics(timeout=WAIT_S)
    assert metadata.cluster_id == cluster.cluster_id
    [partition] = metadata.topics[created].partitions.values()
    assert (partition.leader, partition.replicas, partition.isrs) == (
        cluster.controller.id,
        [cluster.controller.id],
        [cluster.controller.id],
    )


def test_topics_and_partitions_are_created_and_deleted(admin: AdminClient, topic: str) -> None:
    create(admin, topic, partitions=2)
    with pytest.raises(KafkaException) as refused:
        create(admin, topic)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as refused:
        create(admin, "no spaces")
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION

    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(WAIT_S)
    assert len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 4
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS

    admin.delete_topics([topic])[topic].result(WAIT_S)
    assert topic not in admin.list_topics(timeout=WAIT_S).topics
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic])[topic].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_that_is_only_checked_is_not_made(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 3, 1)], validate_only=True)[topic].result(WAIT_S)
    assert topic not in admin.list_topics(timeout=WAIT_S).topics


@pytest.mark.slow
def test_records_are_deleted(broker: BrokerProcess, admin: AdminClient, created: str) -> None:
    producer = Deliveries(broker)
    for number in range(10):
        producer.send(created, b"%d" % number)
    producer.flush()
    partition = TopicPartition(created, 0, 6)
    deleted = admin.delete_records([partition])[partition].result(WAIT_S)
    assert deleted.low_watermark == 6
    assert values(read(broker, created, 4, offset=OFFSET_BEGINNING)) == [b"6", b"7", b"8", b"9"]
    beyond = TopicPartition(created, 0, 11)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([beyond])[beyond].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_are_listed(broker: BrokerProcess, admin: AdminClient, created: str) -> None:
    producer = Deliveries(broker)
    for number in (3, 9, 5):
        producer.send(created, b"value", timestamp=1_600_000_000_000 + number)
        producer.flush()
    partition = TopicPartition(created, 0)
    expected = {
        OffsetSpec.earliest(): 0,
        OffsetSpec.latest(): 3,
        OffsetSpec.max_timestamp(): 1,
        OffsetSpec.for_timestamp(1_600_000_000_004): 1,
        OffsetSpec.for_timestamp(1_600_000_000_010): -1,
    }
    for spec, offset in expected.items():
        answer = admin.list_offsets({partition: spec})[partition].result(WAIT_S)
        assert answer.offset == offset, spec


def test_a_topic_deleted_and_made_again_is_empty(
    broker: BrokerProcess, admin: AdminClient, created: str
) -> None:
    producer = Deliveries(broker)
    for _ in range(3):
        producer.send(created, b"old")
    producer.flush()
    admin.delete_topics([created])[created].result(WAIT_S)
    create(admin, created)
    producer = Deliveries(broker)
    producer.send(created, b"new")
    assert producer.flush() == [0]
    assert values(read(broker, created, 1)) == [b"new"]


@pytest.mark.slow
def test_a_producer_and_a_consumer_outlive_restarts_of_the_broker(
    broker: BrokerProcess, created: str
) -> None:
    settings = {"reconnect_backoff_max_ms": 200}
    producer = Deliveries(broker, enable_idempotence=True, **settings)
    consumer = new_consumer(broker, **settings)
    try:
        consumer.assign([TopicPartition(created, 0, 0)])
        sent = 0
        with restarting(broker, times=2) as is_over:
            while not is_over.wait(0.002):
                producer.send(created, b"%d" % sent)
                sent += 1
        producer.send(created, b"%d" % sent)
        assert producer.flush() == list(range(sent + 1))
        # That the broker was away for a moment is told as an error and is none.
        passing = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}
        received = consume(consumer, sent + 1, passing_errors=passing)
        assert values(received) == [b"%d" % number for number in range(sent + 1)]
    finally:
        consumer.close()
