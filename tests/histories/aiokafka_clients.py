"""Clients of aiokafka: a transactional producer and a consumer of a group."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from tests.histories.client import ABORTED_SHARE, INSIST_S, RECORDS_A_TRANSACTION_MAX, Client, end_offsets
from tests.histories.history import Position, partition_name

POLL_MS: Final = 100
POLL_RECORDS_MAX: Final = 50
RETRY_S: Final = 0.1
CLOSE_S: Final = 10


@contextlib.asynccontextmanager
async def _running(make: Callable[[], Any]) -> AsyncIterator[Any]:
    """A client that is started as soon as the broker can be reached, and closed whatever state it is in."""
    running = make()
    try:
        await running.start()
        yield running
    finally:
        with contextlib.suppress(KafkaError, OSError, asyncio.TimeoutError):
            await asyncio.wait_for(running.stop(), CLOSE_S)


async def _over_and_over(client: Client, live: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A new instance for each that gives up; what it has left open, the next one with its id ends."""
    while not client.is_over:
        try:
            await live()
        except (TimeoutError, KafkaError, OSError) as error:
            client.gave_up(error)
        await asyncio.sleep(RETRY_S)


async def _produce_in_transactions(client: Client) -> None:
    async def live() -> None:
        def make() -> AIOKafkaProducer:
            return AIOKafkaProducer(
                bootstrap_servers=client.plan.address,
                client_id=client.plan.instance,
                transactional_id=client.plan.name,
                transaction_timeout_ms=60_000,
                retry_backoff_ms=20,
                **client.plan.settings,
            )

        async with _running(make) as producer:
            while not client.is_over:
                await asyncio.wait_for(_one_transaction(client, producer), INSIST_S)
                await asyncio.sleep(client.plan.pause_s)

    await _over_and_over(client, live)


async def _one_transaction(client: Client, producer: AIOKafkaProducer) -> None:
    topic = client.plan.topic
    transaction = client.new_transaction()
    await producer.begin_transaction()
    sent = []
    for _ in range(client.rng.randint(1, RECORDS_A_TRANSACTION_MAX)):
        value, partition = client.new_value(topic, transaction=transaction)
        sent.append((value, await producer.send(topic, value.encode(), partition=partition)))
    for value, delivery in sent:
        delivered = await delivery
        client.acknowledged(value, topic, delivered.partition, delivered.offset)
    commit = client.rng.random() >= ABORTED_SHARE
    client.ending(transaction, commit=commit)
    if commit:
        await producer.commit_transaction()
    else:
        await producer.abort_transaction()
    client.ended(transaction, committed=commit)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, client: Client, working: asyncio.Lock) -> None:
        self._client = client
        self._working = working

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Partitions are not given up while a commit is under way; while they are, nothing can be polled."""
        async with self._working:
            pass

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._client.positioned([partition_name(each.topic, each.partition) for each in assigned])


async def _consume(client: Client) -> None:
    async def live() -> None:
        client.consumers += 1
        working = asyncio.Lock()

        def make() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=client.plan.address,
                client_id=client.plan.instance,
                group_id=client.plan.group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level=client.plan.isolation,
                metadata_max_age_ms=1_000,
                retry_backoff_ms=20,
                **client.plan.settings,
            )
            consumer.subscribe([client.plan.topic], listener=_Listener(client, working))
            return consumer

        async with _running(make) as consumer:
            while not client.is_over:
                records = await _poll(client, consumer)
                if records:
                    async with working:
                        await asyncio.wait_for(_commit(client, consumer, end_offsets(records)), INSIST_S)
                await asyncio.sleep(client.plan.pause_s)

    await _over_and_over(client, live)


async def _poll(client: Client, consumer: AIOKafkaConsumer) -> list[tuple[Position, str]]:
    found = await consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS_MAX)
    records = [
        (Position(partition_name(message.topic, message.partition), message.offset), message.value.decode())
        for messages in found.values()
        for message in messages
    ]
    if records:
        client.polled(records)
    return records


async def _commit(client: Client, consumer: AIOKafkaConsumer, offsets: dict[str, int]) -> None:
    wanted = {}
    for name, offset in offsets.items():
        topic, _, number = name.partition("/")
        wanted[TopicPartition(topic, int(number))] = offset
    try:
        await consumer.commit(wanted)
    except KafkaError:
        # By now the partitions may be another member's.
        return
    client.offsets_committed(offsets)


def _on_a_loop(live: Callable[[Client], Coroutine[Any, Any, None]]) -> Callable[[Client], None]:
    def run(client: Client) -> None:
        logging.disable()
        asyncio.run(live(client))

    return run


ROLES: Final = {
    "aiokafka-produce-in-transactions": _on_a_loop(_produce_in_transactions),
    "aiokafka-consume": _on_a_loop(_consume),
}
