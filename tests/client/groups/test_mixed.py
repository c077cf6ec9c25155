"""One group, members of several clients: ours, librdkafka's and aiokafka's; and what one writes the others read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

import barnabas
from tests.client.consumer_servers import OURS, WAIT_S, Server, numbered, read, running
from tests.waiting import poll_each, wait_until

PARTITIONS = 6
AIOKAFKA_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(OURS, tmp_path_factory.mktemp("mixed")) as found:
        yield found


class Member(Protocol):
    def poll(self) -> None: ...

    @property
    def partitions(self) -> set[int]: ...

    @property
    def values(self) -> list[bytes]: ...


class Ours:
    def __init__(self, consumer: barnabas.Consumer) -> None:
        self._consumer = consumer
        self.values: list[bytes] = []

    def poll(self) -> None:
        self.values += [record.value for record in self._consumer.poll(20)]

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}


class Librdkafka:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.values: list[bytes] = []

    def poll(self) -> None:
        for message in self._consumer.consume(100, 0.02):
            assert message.error() is None, message.error()
            self.values.append(message.value())

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}


class Aiokafka:
    """Polls on a loop of its own, in a thread: its getmany waits for a join, and for that the others have to poll."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.values: list[bytes] = []

    async def pump(self) -> None:
        while True:
            got = await self._consumer.getmany(timeout_ms=20)
            self.values += [record.value for records in got.values() for record in records]

    def poll(self) -> None:
        time.sleep(0.005)

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}


@contextmanager
def ours(server: Server, topic: str, assignor: str, **settings: object) -> Iterator[Member]:
    with server.consumer(
        group_id=f"group-of-{topic}", partition_assignment_strategy=assignor, **settings
    ) as consumer:
        consumer.subscribe(topic)
        yield Ours(consumer)


@contextmanager
def librdkafka(server: Server, topic: str, assignor: str, **settings: object) -> Iterator[Member]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": f"group-of-{topic}",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 50,
            "session.timeout.ms": 10_000,
            "log_level": 0,
            "partition.assignment.strategy": assignor,
            **settings,
        }
    )
    consumer.subscribe([topic])
    try:
        yield Librdkafka(consumer)
    finally:
        consumer.close()


@contextmanager
def aiokafka_member(server: Server, topic: str, assignor: str) -> Iterator[Member]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(WAIT_S)

    async def start() -> tuple[Any, Aiokafka, asyncio.Task[None]]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=server.address,
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
            heartbeat_interval_ms=50,
            session_timeout_ms=10_000,
            partition_assignment_strategy=(AIOKAFKA_ASSIGNORS[assignor],),
        )
        await consumer.start()
        # With the topic given above, start() would wait until the others, who are not polled meanwhile, have joined.
        consumer.subscribe([topic])
        member = Aiokafka(consumer)
        return consumer, member, asyncio.create_task(member.pump())

    async def stop(consumer: Any, pumping: asyncio.Task[None]) -> None:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)
        await consumer.stop()

    try:
        consumer, member, pumping = call(start())
        try:
            yield member
        finally:
            call(stop(consumer, pumping))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_S)
        loop.close()


def poll_until(members: list[Member], is_so: Callable[[], bool]) -> None:
    wait_until(
        is_so,
        lambda: [sorted(member.partitions) for member in members],
        meanwhile=lambda: poll_each(members),
    )


def is_shared(members: list[Member]) -> bool:
    """Everything is assigned, once, and everybody has the same share."""
    shares = [member.partitions for member in members]
    return (
        sorted(number for share in shares for number in share) == list(range(PARTITIONS))
        and len({len(share) for share in shares}) == 1
    )


def produce(server: Server, topic: str, start: int) -> list[bytes]:
    sent = numbered(60, start)
    for partition in range(PARTITIONS):
        server.produce(topic, sent[partition::PARTITIONS], partition=partition)
    return sent


@pytest.mark.parametrize("is_first", [True, False], ids=["we lead", "they lead"])
@pytest.mark.parametrize(
    ("other", "assignor"),
    [
        (librdkafka, "range"),
        (librdkafka, "roundrobin"),
        (librdkafka, "cooperative-sticky"),
        (aiokafka_member, "range"),
        (aiokafka_member, "roundrobin"),
        (aiokafka_member, "sticky"),
    ],
)
def test_clients_share_a_group(server: Server, other: Any, assignor: str, is_first: bool) -> None:
    """The first one in leads the group and divides the partitions among both kinds."""
    topic = server.topic(PARTITIONS)
    sent = produce(server, topic, 0)
    kinds = [ours, other] if is_first else [other, ours]
    # Theirs stop first: stopping, aiokafka waits for a join, which would wait for ours, who are not polled any more.
    with ExitStack() as stack_of_ours, ExitStack() as stack_of_theirs:
        members: list[Member] = []
        for kind in (*kinds, ours):
            stack = stack_of_ours if kind is ours else stack_of_theirs
            members.append(stack.enter_context(kind(server, topic, assignor)))
            poll_until(members, lambda: is_shared(members))
        sent += produce(server, topic, 1_000)
        poll_until(members, lambda: {value for each in members for value in each.values} == set(sent))
    # Who stops has committed, so nothing is read twice by who comes later.
    with ours(server, topic, assignor) as late:
        poll_until([late], lambda: len(late.partitions) == PARTITIONS)
        sent = produce(server, topic, 2_000)
        poll_until([late], lambda: len(late.values) >= len(sent))
        assert sorted(late.values) == sorted(sent)


def test_groups_of_the_new_protocol_mix(server: Server) -> None:
    topic = server.topic(PARTITIONS)
    sent = produce(server, topic, 0)
    group = f"group-of-{topic}"
    with ExitStack() as stack:
        consumer = stack.enter_context(server.consumer(group_id=group, group_protocol="consumer"))
        consumer.subscribe(topic)
        theirs = confluent_kafka.Consumer(
            {
                "bootstrap.servers": server.address,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        stack.callback(theirs.close)
        theirs.subscribe([topic])
        members: list[Member] = [Ours(consumer), Librdkafka(theirs)]
        poll_until(members, lambda: is_shared(members))
        sent += produce(server, topic, 1_000)
        poll_until(members, lambda: {value for each in members for value in each.values} == set(sent))


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_others_write_we_read(server: Server, compression: str) -> None:
    topic = server.topic()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server.address,
            "compression.type": compression,
            "linger.ms": 20,
            "log_level": 0,
        }
    )
    for number in range(100):
        producer.produce(
            topic,
            b"%d" % number,
            b"key-%d" % number,
            headers=[("h", b"%d" % number)],
            timestamp=1_000 + number,
        )
    assert producer.flush(WAIT_S) == 0

    async def write() -> None:
        theirs = aiokafka.AIOKafkaProducer(
            bootstrap_servers=server.address, compression_type=None if compression == "none" else compression
        )
        await theirs.start()
        try:
            for number in range(100, 150):
                await theirs.send(
                    topic,
                    b"%d" % number,
                    b"key-%d" % number,
                    timestamp_ms=1_000 + number,
                    headers=[("h", b"%d" % number)],
                )
            await theirs.flush()
        finally:
            await theirs.stop()

    asyncio.run(write())
    with server.consumer() as consumer:
        consumer.assign([(topic, 0)])
        records = read(consumer, 150)
    for number, record in enumerate(records):
        assert (record.offset, record.value, record.key) == (number, b"%d" % number, b"key-%d" % number)
        assert (record.timestamp_ms, record.headers) == (1_000 + number, (("h", b"%d" % number),))
