"""The producer on our broker and on Apache Kafka alike, and beside other clients of Python."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import pytest

from barnabas.client.failures import RecordTooLarge
from barnabas.client.producer.producer import Producer
from barnabas.errors import UnknownTopicOrPartition
from barnabas.records.layout import CompressionType
from tests.client.consumer_servers import SERVERS, Server, numbered, read, running
from tests.client.reading import read_batches, read_partition, read_values

WAIT_S = 60


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(request.param, tmp_path_factory.mktemp("producers")) as started:
        yield started


@pytest.fixture(scope="module")
def producer(server: Server) -> Iterator[Producer]:
    with Producer(bootstrap_servers=server.address) as shared:
        yield shared


def test_records_arrive_as_they_were_sent(server: Server, producer: Producer) -> None:
    topic = server.topic()
    sent = numbered(1_000)
    producer.send(topic, b"first", b"key", headers={"h": None}, timestamp_ms=1_700_000_000_000).result(WAIT_S)
    singles = [producer.send(topic, value) for value in sent]
    many = producer.send_many(topic, sent)
    assert [each.offset for each in many.result(WAIT_S)] == list(range(1_001, 2_001))
    assert [single.result(WAIT_S).offset for single in singles] == list(range(1, 1_001))
    with server.process.client() as client:
        records = read_partition(client, topic)
    assert [record.value for record in records] == [b"first", *sent, *sent]
    assert (records[0].key, records[0].headers) == (b"key", (("h", None),))
    assert records[0].timestamp == 1_700_000_000_000
    assert {record.sequence for record in records[:2]} == {0, 1}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressions(server: Server, compression: str) -> None:
    topic = server.topic()
    sent = [b"a value that repeats itself " * 10 + number for number in numbered(200)]
    with Producer(bootstrap_servers=server.address, compression_type=compression) as producer:
        producer.send_many(topic, sent).result(WAIT_S)
    with server.process.client() as client:
        batches = read_batches(client, topic)
    assert {header.compression for header, _ in batches} == {CompressionType[compression.upper()]}
    assert [record.value for _, records in batches for record in records] == sent


def test_what_is_too_large_is_split_or_refused(server: Server) -> None:
    topic = server.topic(max_message_bytes="3000")
    sent = [number + bytes(100) for number in numbered(300)]
    with Producer(bootstrap_servers=server.address, linger_ms=20) as producer:
        assert len(producer.send_many(topic, sent).result(WAIT_S)) == 300
        with pytest.raises(RecordTooLarge):
            producer.send(topic, bytes(5_000)).result(WAIT_S)
        producer.send(topic, b"after").result(WAIT_S)
    assert read_values(server.process, topic) == [[*sent, b"after"]]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(server: Server, acks: object) -> None:
    topic = server.topic()
    with Producer(bootstrap_servers=server.address, acks=acks) as producer:
        futures = [producer.send(topic, value) for value in numbered(100)]
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert [future.result(0).offset for future in futures] == (
            [-1] * 100 if acks == 0 else list(range(100))
        )


def test_a_partition_that_is_not_there(server: Server, producer: Producer) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 1"):
        producer.send(server.topic(2), b"v", partition=2)


def test_our_consumer_reads_what_our_producer_writes(server: Server, producer: Producer) -> None:
    topic = server.topic()
    producer.send_many(topic, [(b"k", b"v", {"h": b"1"}), (None, None)]).result(WAIT_S)
    with server.consumer() as consumer:
        consumer.assign([(topic, 0)])
        found = read(consumer, 2)
    assert [(each.key, each.value) for each in found] == [(b"k", b"v"), (None, None)]


def test_keys_meet_the_partitions_of_others(server: Server, producer: Producer) -> None:
    topic = server.topic(7)
    keys = [b"key-%d" % number for number in range(50)]
    ours = [producer.send(topic, b"v", key).result(WAIT_S).partition for key in keys]
    theirs: list[int] = []
    confluent = confluent_kafka.Producer(
        {"bootstrap.servers": server.address, "partitioner": "murmur2_random", "log_level": 2}
    )
    for key in keys:
        confluent.produce(
            topic, b"v", key, on_delivery=lambda error, message: theirs.append(message.partition())
        )
        assert confluent.flush(WAIT_S) == 0
    assert theirs == ours

    async def through_aiokafka() -> list[int]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=server.address) as other:
            return [(await other.send_and_wait(topic, b"v", key)).partition for key in keys]

    assert asyncio.run(through_aiokafka()) == ours


@pytest.mark.slow
def test_others_read_what_we_write(server: Server, producer: Producer) -> None:
    topic = server.topic()
    sent = numbered(100)
    producer.send_many(topic, sent).result(WAIT_S)
    confluent = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": f"group-of-{topic}",
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    try:
        confluent.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < 100:
            messages = confluent.consume(100, WAIT_S)
            assert messages
            found += [message.value() for message in messages]
    finally:
        confluent.close()
    assert found == sent

    async def through_aiokafka() -> list[bytes]:
        tp = aiokafka.TopicPartition(topic, 0)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=server.address, auto_offset_reset="earliest")
        consumer.assign([tp])
        async with consumer:
            return [(await consumer.getone()).value for _ in range(100)]

    assert asyncio.run(through_aiokafka()) == sent
