"""Transactions of aiokafka: commit, abort, fencing, time-outs, offsets of a group."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, ProducerFenced

from tests.clients.broker_process import BrokerProcess
from tests.clients.test_aiokafka import on_a_loop
from tests.waiting import Deadline

PARTITIONS = 3
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("transactions") / "data", SETTINGS) as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


async def create(broker: BrokerProcess, *topics: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    finally:
        await admin.close()


@asynccontextmanager
async def producing(
    broker: BrokerProcess, transactional_id: str | None, **settings: Any
) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.address, transactional_id=transactional_id, **settings
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(broker: BrokerProcess, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=broker.address,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def write(producer: AIOKafkaProducer, topic: str, *values: bytes) -> None:
    """A record for each value, partition by partition; returns when they are written."""
    sent = [
        await producer.send(topic, value, partition=index % PARTITIONS) for index, value in enumerate(values)
    ]
    await asyncio.gather(*sent)


async def read(broker: BrokerProcess, topic: str, *, isolation: str = "read_committed") -> list[bytes]:
    """The values of all records up to the end as it is for this isolation, in no particular order."""
    found: list[bytes] = []
    async with consuming(broker, isolation_level=isolation) as consumer:
        partitions = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        deadline = Deadline()
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            deadline.check((found, ends))
            for messages in (await consumer.getmany(timeout_ms=50)).values():
                found += [message.value for message in messages]
    return found


@on_a_loop
async def test_committed_records_are_seen_and_aborted_ones_are_not(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    async with producing(broker, topic) as producer:
        async with producer.transaction():
            await write(producer, topic, *(b"first-%d" % number for number in range(9)))
            assert await read(broker, topic) == []
            assert len(await read(broker, topic, isolation="read_uncommitted")) == 9
        assert len(await read(broker, topic)) == 9
        await producer.begin_transaction()
        await write(producer, topic, *(b"second-%d" % number for number in range(9)))
        await producer.abort_transaction()
        async with producer.transaction():
            await write(producer, topic, b"third")
    assert sorted(await read(broker, topic)) == [*(b"first-%d" % number for number in range(9)), b"third"]
    assert len(await read(broker, topic, isolation="read_uncommitted")) == 19


@on_a_loop
async def test_a_second_producer_fences_the_first(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    async with producing(broker, topic) as first:
        await first.begin_transaction()
        await write(first, topic, b"zombie")
        async with producing(broker, topic) as second:
            assert await read(broker, topic) == []
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
            async with second.transaction():
                await write(second, topic, b"alive")
    assert await read(broker, topic) == [b"alive"]


@on_a_loop
async def test_a_transaction_that_takes_too_long_is_aborted(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    async with producing(broker, topic, transaction_timeout_ms=1_000) as late:
        await late.begin_transaction()
        with contextlib.suppress(KafkaError):
            # On a very busy machine the time is over before this has been written.
            await write(late, topic, b"late")
        async with producing(broker, None) as plain:
            await write(plain, topic, b"plain")
        deadline = Deadline()
        while await read(broker, topic) != [b"plain"]:
            deadline.check("the transaction is still open")
            await asyncio.sleep(0.05)
        with pytest.raises(KafkaError):
            await late.commit_transaction()
    assert await read(broker, topic) == [b"plain"]


@on_a_loop
async def test_records_are_read_transformed_and_written_once(broker: BrokerProcess, topic: str) -> None:
    source, target = f"{topic}-source", f"{topic}-target"
    count = 90
    await create(broker, source, target)
    async with producing(broker, None) as plain:
        await write(plain, source, *(b"%d" % number for number in range(count)))
    async with (
        producing(broker, topic) as producer,
        consuming(broker, source, group_id=topic, isolation_level="read_committed") as consumer,
    ):
        done = 0
        attempt = 0
        deadline = Deadline()
        while done < count:
            deadline.check(done)
            batches = await consumer.getmany(timeout_ms=50, max_records=20)
            if not batches:
                continue
            attempt += 1
            await producer.begin_transaction()
            for where, messages in batches.items():
                for message in messages:
                    await producer.send(target, message.value, partition=where.partition)
            offsets = {where: messages[-1].offset + 1 for where, messages in batches.items()}
            await producer.send_offsets_to_transaction(offsets, topic)
            if attempt % 3 == 1:
                await producer.abort_transaction()
                for where, messages in batches.items():
                    consumer.seek(where, messages[0].offset)
            else:
                await producer.commit_transaction()
                done += sum(map(len, batches.values()))
        committed = [await consumer.committed(TopicPartition(source, each)) for each in range(PARTITIONS)]
        assert committed == [count // PARTITIONS] * PARTITIONS
    assert sorted(map(int, await read(broker, target))) == list(range(count))
