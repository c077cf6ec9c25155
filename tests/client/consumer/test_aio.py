"""The consumer for asyncio: the same core, so what is tested here is what differs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

import barnabas
import barnabas.aio
from barnabas.client.failures import ClientClosed
from barnabas.client.subscription import ConsumerError
from barnabas.errors import RequestTimedOut
from barnabas.model import TopicPartition
from tests.client.consumer_servers import OURS, WAIT_S, Server, consumer_settings, numbered, running, values
from tests.waiting import Deadline

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(OURS, tmp_path_factory.mktemp("consumer")) as found:
        yield found


def consumer_of(server: Server, **settings: object) -> barnabas.aio.Consumer:
    return barnabas.aio.Consumer(bootstrap_servers=server.address, **consumer_settings(settings))


def on_a_loop(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(3 * WAIT_S):
            await work()
        # Nothing of ours is left on the caller's loop.
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(bounded())


async def read(consumer: barnabas.aio.Consumer, count: int) -> list[barnabas.ConsumerRecord]:
    records: list[barnabas.ConsumerRecord] = []
    deadline = Deadline()
    while len(records) < count:
        deadline.check(f"{len(records)} of {count} records")
        records += await consumer.poll(100)
    assert len(records) == count
    return records


def test_records_offsets_and_positions(server: Server) -> None:
    topic = server.topic(2)
    server.produce(topic, numbered(30))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def work() -> None:
        async with consumer_of(server) as consumer:
            consumer.assign([first, second])
            assert values(await read(consumer, 30)) == numbered(30)
            assert await consumer.position(first) == 30
            assert await consumer.end_offsets() == {first: 30, second: 0}
            assert await consumer.beginning_offsets(first) == {first: 0}
            assert await consumer.lag(first) == 0
            assert (await consumer.offsets_for_times({second: 0})) == {second: None}
            assert [each.partition for each in await consumer.partitions_for(topic)] == [0, 1]
            assert topic in await consumer.topics()
            consumer.seek(first, 10)
            got = []
            async for record in consumer:
                got.append(record.value)
                if len(got) == 5:
                    break
            assert await consumer.position(first) == 15
            got += [value.value for batch in await consumer.poll_batches(1_000) for value in batch.records()]
            assert got == numbered(20, 10)
            assert await consumer.poll(10) == []
            with pytest.raises(RequestTimedOut, match="has 2 partitions"):
                await consumer.end_offsets((topic, 9), timeout_ms=100)
        with pytest.raises(ClientClosed):
            await consumer.poll()

    on_a_loop(work)


def test_arrow_record_batches(server: Server) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is needed for record batches: install barnabas[arrow]")
    topic = server.topic()
    server.produce(topic, numbered(30))

    async def work() -> None:
        async with consumer_of(server) as consumer:
            consumer.assign([(topic, 0)])
            got = values(await consumer.poll(WAIT_S * 1_000, max_records=3))
            deadline = Deadline()
            while len(got) < 30 and not deadline.is_over:
                made = await consumer.poll_arrow(100)
                made.validate(full=True)
                assert made.column("offset").to_pylist() == list(range(len(got), len(got) + made.num_rows))
                got += made.column("value").to_pylist()
                assert await consumer.position((topic, 0)) == len(got)
            assert got == numbered(30)
            assert (await consumer.poll_arrow(0)).num_rows == 0

    on_a_loop(work)


@pytest.mark.parametrize("protocol", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
def test_a_group_with_a_listener_of_coroutines(server: Server, protocol: dict[str, object]) -> None:
    topic = server.topic(2)
    server.produce(topic, numbered(10))
    partition = TopicPartition(topic, 0)
    events: list[str] = []
    consumer: barnabas.aio.Consumer

    class Listener(barnabas.RebalanceListener):
        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            events.append(f"assigned {len(partitions)}")

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            events.append(f"revoked {len(partitions)} at {await consumer.position(partition)}")

    async def work() -> None:
        nonlocal consumer
        group = f"group-of-{topic}"
        async with consumer_of(server, group_id=group, enable_auto_commit=False, **protocol) as consumer:
            consumer.subscribe(topic, listener=Listener())
            await read(consumer, 10)
            told: list[object] = []
            await consumer.commit_async({partition: 3}, lambda *what: told.append(what))
            await consumer.poll(0)
            assert told == [({partition: barnabas.OffsetAndMetadata(3)}, None)]
            await consumer.commit({partition: 4})
            assert (await consumer.committed(partition))[partition] == barnabas.OffsetAndMetadata(4)
        async with consumer_of(server, group_id=group, **protocol) as consumer:
            consumer.subscribe(topic)
            assert values(await read(consumer, 6)) == numbered(6, 4)
            await consumer.unsubscribe()
            assert (await consumer.committed(partition))[partition] == barnabas.OffsetAndMetadata(
                10, leader_epoch=0
            )

    on_a_loop(work)
    assert events == ["assigned 2", "revoked 2 at 10"]


def test_two_members_on_one_loop(server: Server) -> None:
    topic = server.topic(4)

    async def work() -> None:
        group = f"group-of-{topic}"
        seen: list[bytes] = []

        async def member(is_over: Callable[[], bool]) -> None:
            async with consumer_of(server, group_id=group) as consumer:
                consumer.subscribe(topic)
                while not is_over():
                    seen.extend(values(await consumer.poll(20)))

        async def produce() -> None:
            async with barnabas.aio.Producer(bootstrap_servers=server.address) as producer:
                for number in range(200):
                    await producer.send(topic, b"%d" % number, partition=number % 4)

        async with asyncio.TaskGroup() as group_of_tasks:
            for _ in range(2):
                group_of_tasks.create_task(member(lambda: len(set(seen)) == 200))
            group_of_tasks.create_task(produce())
        assert sorted(set(seen), key=int) == numbered(200)

    on_a_loop(work)


def test_a_poll_may_be_cancelled(server: Server) -> None:
    topic = server.topic()

    async def work() -> None:
        async with consumer_of(server) as consumer:
            consumer.assign([(topic, 0)])
            polling: Awaitable[Any] = asyncio.create_task(consumer.poll(WAIT_S * 1000))
            await asyncio.sleep(0)
            with pytest.raises(ConsumerError, match="under way"):
                await consumer.poll()
            polling.cancel()  # type: ignore[attr-defined]
            with pytest.raises(asyncio.CancelledError):
                await polling
            server.produce(topic, [b"1"])
            assert values(await read(consumer, 1)) == [b"1"]

    on_a_loop(work)


def test_a_poll_under_way_ends_when_another_task_closes(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, numbered(10))
    group = f"group-of-{topic}"

    async def work() -> None:
        consumer = consumer_of(server, group_id=group)
        consumer.subscribe([topic])
        has_all = asyncio.Event()

        async def follow() -> None:
            async for record in consumer:
                if record.offset == 9:
                    has_all.set()

        following = asyncio.create_task(follow())
        await has_all.wait()
        assert consumer._core.handover.is_polling
        await consumer.close()
        with pytest.raises(ClientClosed, match="while a poll was under way"):
            await following

    on_a_loop(work)
    assert server.admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 10


def test_a_listener_that_is_cancelled_is_called_again(server: Server) -> None:
    topic = server.topic()
    server.produce(topic, numbered(10))

    class Seeking(barnabas.RebalanceListener):
        def __init__(self, consumer: barnabas.aio.Consumer) -> None:
            self.consumer = consumer
            self.calls = 0
            self.is_called = asyncio.Event()

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            self.calls += 1
            self.is_called.set()
            if self.calls == 1:
                await asyncio.get_running_loop().create_future()
            self.consumer.seek(partitions[0], 7)

    async def work() -> None:
        async with consumer_of(server, group_id=f"group-of-{topic}") as consumer:
            listener = Seeking(consumer)
            consumer.subscribe([topic], listener=listener)
            poll = asyncio.create_task(consumer.poll(WAIT_S * 1000))
            await listener.is_called.wait()
            poll.cancel()
            await asyncio.wait([poll])
            assert values(await read(consumer, 3)) == numbered(3, 7)
            assert listener.calls == 2

    on_a_loop(work)
