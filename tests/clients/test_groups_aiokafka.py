"""Groups of aiokafka: assignors, static members, offsets and administration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.clients.broker_process import BrokerProcess
from tests.clients.test_aiokafka import on_a_loop, producing
from tests.waiting import Deadline, wait_until_async

PARTITIONS = 4

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
    with BrokerProcess(tmp_path_factory.mktemp("groups") / "data", settings) as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()


@asynccontextmanager
async def member(
    broker: BrokerProcess, group_id: str, topic: str, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.address,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        **settings,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def create(broker: BrokerProcess, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    finally:
        await admin.close()


async def produce(producer: AIOKafkaProducer, topic: str, numbers: range) -> None:
    for number in numbers:
        await producer.send_and_wait(topic, b"%d" % number, partition=number % PARTITIONS)


def partitions(consumer: AIOKafkaConsumer) -> set[int]:
    return {each.partition for each in consumer.assignment()}


async def receive(consumers: list[AIOKafkaConsumer], count: int) -> list[bytes]:
    received: list[bytes] = []
    deadline = Deadline()
    while len(received) < count:
        deadline.check(f"{len(received)} of {count} records")
        for consumer in consumers:
            for records in (await consumer.getmany(timeout_ms=50)).values():
                received += [record.value for record in records]
    return sorted(received, key=int)


@pytest.mark.parametrize(
    "assignor", [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
)
@on_a_loop
async def test_members_share_the_partitions(broker: BrokerProcess, topic: str, assignor: Any) -> None:
    await create(broker, topic)
    options = {"partition_assignment_strategy": (assignor,)}
    async with producing(broker) as producer, member(broker, topic, topic, **options) as first:
        async with member(broker, topic, topic, **options) as second:
            await wait_until_async(
                lambda: sorted(map(len, (partitions(first), partitions(second)))) == [2, 2]
            )
            assert partitions(first) | partitions(second) == set(range(PARTITIONS))
            await produce(producer, topic, range(40))
            assert await receive([first, second], 40) == [b"%d" % number for number in range(40)]
            await first.commit()
            await second.commit()
        await wait_until_async(lambda: len(partitions(first)) == PARTITIONS)
        await produce(producer, topic, range(40, 48))
        assert await receive([first], 8) == [b"%d" % number for number in range(40, 48)]


@on_a_loop
async def test_a_static_member_comes_back_to_its_partitions(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)

    def of_group(name: str) -> Any:
        return member(broker, topic, topic, group_instance_id=name, session_timeout_ms=120_000)

    async with of_group("one") as first:
        async with of_group("two") as second:
            await wait_until_async(
                lambda: sorted(map(len, (partitions(first), partitions(second)))) == [2, 2]
            )
            before = partitions(second)
        async with of_group("two") as back:
            await wait_until_async(lambda: len(partitions(back)) == 2)
            assert partitions(back) == before


@on_a_loop
async def test_offsets_and_administration(broker: BrokerProcess, topic: str) -> None:
    await create(broker, topic)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        async with producing(broker) as producer, member(broker, topic, topic, client_id="me") as consumer:
            await produce(producer, topic, range(8))
            await receive([consumer], 8)
            await consumer.commit({TopicPartition(topic, 0): (2, "so far")})
            assert await consumer.committed(TopicPartition(topic, 0)) == 2
            assert await consumer.committed(TopicPartition(topic, 1)) is None
            assert (topic, "consumer") in await admin.list_consumer_groups()
            offsets = await admin.list_consumer_group_offsets(topic)
            assert offsets[TopicPartition(topic, 0)].offset == 2
            assert offsets[TopicPartition(topic, 0)].metadata == "so far"
            [response] = await admin.describe_consumer_groups([topic])
            [described] = response.groups
            assert described[:5] == (0, topic, "Stable", "consumer", "roundrobin")
    finally:
        await admin.close()
