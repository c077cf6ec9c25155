"""aiokafka against a running broker: producing, consuming assigned partitions, administration."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError, TopicAlreadyExistsError

from tests.clients.broker_process import BrokerProcess, restarting
from tests.sampling import sample

T = TypeVar("T")

WAIT_S = 60
WAIT_MS = WAIT_S * 1_000
COMPRESSIONS = [None, "gzip", "snappy", "lz4", "zstd"]


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 2 * WAIT_S))

    return run


@asynccontextmanager
async def producing(broker: BrokerProcess, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.address, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(
    broker: BrokerProcess, *partitions: TopicPartition, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.address,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings},
    )
    await consumer.start()
    try:
        consumer.assign(partitions)
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def administrating(broker: BrokerProcess) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address, request_timeout_ms=WAIT_MS)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(broker: BrokerProcess, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    async with administrating(broker) as admin:
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])


async def take(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    return [await asyncio.wait_for(consumer.getone(), WAIT_S) for _ in range(count)]


async def read(broker: BrokerProcess, topic: str, count: int, **settings: Any) -> list[ConsumerRecord]:
    async with consuming(broker, TopicPartition(topic, 0), **settings) as consumer:
        return await take(consumer, count)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("acks", sample(["all", 0, 1], fast=1))
@on_a_loop
async def test_every_compression_with_every_acks(
    broker: BrokerProcess, topic: str, compression: str | None, acks: int | str
) -> None:
    await create(broker, topic)
    expected = [b"%d %s" % (number, b"value " * 20) for number in range(200)]
    async with producing(broker, compression_type=compression, acks=acks, linger_ms=20) as producer:
        sent = [await producer.send(topic, value, key=value[:3]) for value in expected]
        found = await asyncio.gather(*sent)
    if acks != 0:
        assert [each.offset for each in found] == list(range(200))
    received = await read(broker, topic, 200)
    assert [(record.offset, record.key, record.value) for record in received] == [
        (offset, value[:3], value) for offset, value in enumerate(expected)
    ]


@on_a_loop
async def test_an_idempotent_producer(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    async with producing(broker, enable_idempotence=True, max_batch_size=500) as producer:
        sent = [await producer.send(topic, b"%d" % number) for number in range(500)]
        found = await asyncio.gather(*sent)
    assert [each.offset for each in found] == list(range(500))
    received = await read(broker, topic, 500, isolation_level="read_committed")
    assert [record.value for record in received] == [b"%d" % number for number in range(500)]


@on_a_loop
async def test_headers_nulls_and_timestamps(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b"")]
    async with producing(broker) as producer:
        await producer.send_and_wait(topic, b"value", headers=headers, timestamp_ms=1_600_000_000_123)
        await producer.send_and_wait(topic, None, key=b"tombstone")
        await producer.send_and_wait(topic, b"", key=b"")
    first, second, third = await read(broker, topic, 3)
    assert list(first.headers) == headers
    assert (first.timestamp, first.timestamp_type, first.key) == (1_600_000_000_123, 0, None)
    assert (second.key, second.value, list(second.headers)) == (b"tombstone", None, [])
    assert (third.key, third.value) == (b"", b"")


@on_a_loop
async def test_large_records(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic, max_message_bytes="20000000")
    large = [bytes([number]) * 5_000_000 for number in range(2)]
    async with producing(broker, max_request_size=20_000_000) as producer:
        for value in large:
            await producer.send_and_wait(topic, value)
    received = await read(broker, topic, 2, max_partition_fetch_bytes=20_000_000)
    assert [record.value for record in received] == large


@on_a_loop
async def test_a_record_that_is_too_large_for_the_topic(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic, max_message_bytes="1000")
    async with producing(broker) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, bytes(2_000))
        found = await producer.send_and_wait(topic, b"small")
    assert found.offset == 0


@on_a_loop
async def test_where_a_consumer_begins(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    partition = TopicPartition(topic, 0)
    async with producing(broker) as producer:
        for number in range(10):
            await producer.send_and_wait(
                topic, b"%d" % number, timestamp_ms=1_600_000_000_000 + 1_000 * number
            )
        async with consuming(broker, partition) as consumer:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 10}
            found = await consumer.offsets_for_times({partition: 1_600_000_004_500})
            assert (found[partition].offset, found[partition].timestamp) == (5, 1_600_000_005_000)
            none = await consumer.offsets_for_times({partition: int(time.time() * 1_000) + 1_000_000})
            assert none == {partition: None}
            assert [record.value for record in await take(consumer, 2)] == [b"0", b"1"]
            consumer.seek(partition, 8)
            assert [record.value for record in await take(consumer, 2)] == [b"8", b"9"]
            await consumer.seek_to_beginning()
            assert [record.value for record in await take(consumer, 1)] == [b"0"]
            await consumer.seek_to_end()
            assert await consumer.position(partition) == 10
            await producer.send_and_wait(topic, b"new")
            assert [record.value for record in await take(consumer, 1)] == [b"new"]


@on_a_loop
async def test_an_offset_out_of_range(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    partition = TopicPartition(topic, 0)
    async with producing(broker) as producer:
        await producer.send_and_wait(topic, b"only")
    async with consuming(broker, partition, auto_offset_reset="none") as consumer:
        consumer.seek(partition, 99)
        with pytest.raises(OffsetOutOfRangeError):
            await take(consumer, 1)
    async with consuming(broker, partition) as consumer:
        consumer.seek(partition, 99)
        assert [record.value for record in await take(consumer, 1)] == [b"only"]


@on_a_loop
async def test_a_topic_comes_into_being_when_it_is_produced_to(broker: BrokerProcess, topic: str) -> None:
    async with producing(broker) as producer:
        found = await producer.send_and_wait(topic, b"first")
    assert (found.partition, found.offset) == (0, 0)
    assert [record.value for record in await read(broker, topic, 1)] == [b"first"]


@on_a_loop
async def test_topics_and_partitions_are_created_and_deleted(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic, partitions=2)
    async with administrating(broker) as admin:
        [described] = await admin.describe_topics([topic])
        assert (described["topic"], len(described["partitions"])) == (topic, 2)
        again = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert [each[1] for each in again.topic_errors] == [TopicAlreadyExistsError.errno]
        await admin.create_partitions({topic: NewPartitions(4)})
        [described] = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 4
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
        await admin.create_topics([NewTopic(topic, 1, 1)])
        assert topic in await admin.list_topics()


@on_a_loop
async def test_records_are_deleted(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    async with producing(broker) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number)
    async with administrating(broker) as admin:
        partition = TopicPartition(topic, 0)
        deleted = await admin.delete_records({partition: RecordsToDelete(before_offset=6)})
    assert deleted == {partition: 6}
    received = await read(broker, topic, 4)
    assert [record.value for record in received] == [b"6", b"7", b"8", b"9"]


@on_a_loop
async def test_the_cluster_is_described(broker: BrokerProcess) -> None:
    async with administrating(broker) as admin:
        described = await admin.describe_cluster()
    assert [each["node_id"] for each in described["brokers"]] == [described["controller_id"]]
    assert f"{described['brokers'][0]['host']}:{described['brokers'][0]['port']}" == broker.address


@on_a_loop
async def test_a_topic_deleted_and_made_again_is_empty(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    async with producing(broker) as producer:
        await producer.send_and_wait(topic, b"old")
    async with administrating(broker) as admin:
        await admin.delete_topics([topic])
    await create(broker, topic)
    async with producing(broker) as producer:
        assert (await producer.send_and_wait(topic, b"new")).offset == 0
    assert [record.value for record in await read(broker, topic, 1)] == [b"new"]


@pytest.mark.slow
@on_a_loop
async def test_a_producer_and_a_consumer_outlive_restarts_of_the_broker(
    broker: BrokerProcess, topic: str
) -> None:
    await create(broker, topic)
    async with (
        producing(broker, enable_idempotence=True, request_timeout_ms=WAIT_MS) as producer,
        consuming(broker, TopicPartition(topic, 0)) as consumer,
    ):
        sent: list[asyncio.Future[Any]] = []
        with restarting(broker, times=2) as is_over:
            while not is_over.is_set():
                sent.append(await producer.send(topic, b"%d" % len(sent)))
                await asyncio.sleep(0.005)
        sent.append(await producer.send(topic, b"%d" % len(sent)))
        found = await asyncio.wait_for(asyncio.gather(*sent), WAIT_S)
        assert [each.offset for each in found] == list(range(len(sent)))
        received = await take(consumer, len(sent))
        assert [record.value for record in received] == [b"%d" % number for number in range(len(sent))]
