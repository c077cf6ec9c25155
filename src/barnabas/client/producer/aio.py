"""The producer for asyncio: the same core on the caller's loop.

    async with aio.Producer(bootstrap_servers="localhost:9092") as producer:
        future = await producer.send("orders", b"value", key=b"key")
        print((await future).offset)

`await send(...)` waits only for a topic that is not known yet and for memory; the future that it gives is awaited for
the acknowledgement. All calls belong on one loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from barnabas.client.failures import BufferExhausted, SerializationError
from barnabas.client.producer.accumulator import TopicQueue
from barnabas.client.producer.batches import BATCH_OVERHEAD_BYTES, PartitionQueue, record_bound_bytes
from barnabas.client.producer.buffer_pool import Waiter
from barnabas.client.producer.core import ProducerCore
from barnabas.client.producer.futures import OnDelivery, SendFuture, SendManyFuture
from barnabas.client.producer.many import ManyAppender, many_records
from barnabas.client.producer.records import HeadersLike, RecordMetadata, SharedTransaction
from barnabas.client.producer.serializers import to_headers
from barnabas.client.settings import ProducerSettings
from barnabas.client.timeouts import timeouts_in_ms
from barnabas.errors import RequestTimedOut
from barnabas.records.record import NO_HEADERS


@timeouts_in_ms
class AsyncProducer:
    """Sends records to topics. Settings have Kafka's names, as keywords with underscores or a mapping with dots."""

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        self._core = ProducerCore(ProducerSettings(settings, **keywords))
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Makes ready; the first call of anything else does so too."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            await self._core.start(self._loop.call_soon)

    async def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> SendFuture:
        """Sends a record; the result of the future is its position."""
        core = self._core
        if self._loop is None:
            await self.start()
        if core.refusal is not None:
            core.refuse()
        if core.interceptors:
            record = core.intercept(topic, value, key, partition, timestamp_ms, headers)
            topic, value, key, partition, timestamp_ms, headers = record
        value_bytes = None if value is None else core.value_bytes(topic, value)
        key_bytes = None if key is None else core.key_bytes(topic, key)
        record_headers = to_headers(headers) if headers else NO_HEADERS
        topic_queue = core.accumulator.topics.get(topic)
        if topic_queue is None:
            topic_queue = await core.learn(topic, core.settings.max_block_ms)
        queue = core.queue_for(topic_queue, partition, key_bytes, value_bytes)
        if queue is None:
            queue = await self._learn_partition(topic_queue, partition)
        future = core.append(topic_queue, queue, timestamp_ms, key_bytes, value_bytes, record_headers, 0)
        if future is None:
            reserved_bytes = record_bound_bytes(key_bytes, value_bytes, record_headers) + BATCH_OVERHEAD_BYTES
            await self._wait_for_room(reserved_bytes)
            future = core.append(
                topic_queue, queue, timestamp_ms, key_bytes, value_bytes, record_headers, reserved_bytes
            )
            assert future is not None
        core.on_done(future, on_delivery)
        return future

    async def send_and_wait(
        self, topic: str, value: object = None, key: object = None, **others: Any
    ) -> RecordMetadata:
        """Sends a record and waits until it is acknowledged."""
        return await (await self.send(topic, value, key, **others))

    async def send_many(
        self,
        topic: str,
        records: Any,
        *,
        keys: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> SendManyFuture:
        """Sends many records at once, in any of the forms that the blocking producer takes."""
        core = self._core
        await self.start()
        if core.refusal is not None:
            core.refuse()
        if core.interceptors:
            raise SerializationError(
                "send_many runs no interceptors: use send, or leave interceptor.classes out"
            )
        topic_queue = core.accumulator.topics.get(topic)
        if topic_queue is None:
            topic_queue = await core.learn(topic, core.settings.max_block_ms)
        if partition is not None and core.queue_for(topic_queue, partition, None, None) is None:
            await self._learn_partition(topic_queue, partition)
        made = many_records(core, topic_queue, records, keys, headers)
        highest = made.highest_partition
        if highest is not None and highest >= len(topic_queue.partitions):
            await self._learn_partition(topic_queue, highest)
        appender = ManyAppender(core, topic_queue, partition, timestamp_ms, made)
        reserved_bytes = 0
        while not appender.append(reserved_bytes):
            reserved_bytes = appender.next_bound_bytes()
            await self._wait_for_room(reserved_bytes)
        return appender.future

    async def flush(self, *, timeout_ms: float | None = None) -> None:
        """Sends everything at once and waits until all records are acknowledged or have failed."""
        await self.start()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._core.flushed()
        except TimeoutError:
            raise RequestTimedOut(f"not all records were acknowledged within {timeout_ms:g} ms") from None

    def metrics(self) -> dict[str, float]:
        """Metrics of this producer, by the names of Kafka's own metrics."""
        return self._core.metrics()

    async def partitions_for(
        self, topic: str, *, timeout_ms: float | None = None, creates: bool = False
    ) -> int:
        """How many partitions a topic has. Raises UnknownTopicOrPartition if it does not exist.

        With `creates`, the broker may create a missing topic, as it may for a record.
        """
        await self.start()
        found = await self._core.learn(topic, self._timeout_ms(timeout_ms), creates=creates)
        return len(found.partitions)

    async def init_transactions(self, *, timeout_ms: float | None = None) -> None:
        """Fences other producers of the transactional id and ends their open transaction."""
        await self.start()
        await self._core.init_transactions(self._timeout_ms(timeout_ms))

    async def begin_transaction(self) -> None:
        """Begins a transaction: it holds all records and offsets until it is committed or aborted."""
        await self.start()
        await self._core.begin_transaction()

    async def share_transaction(self) -> SharedTransaction:
        """The data that other producers of this transactional id need for `join_transaction`; it may be pickled."""
        await self.start()
        return await self._core.share_transaction()

    async def join_transaction(self, shared: SharedTransaction) -> None:
        """Sends into another producer's transaction, which only that one ends; see `Producer.join_transaction`."""
        await self.start()
        await self._core.join_transaction(shared)

    async def leave_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Waits until all that was sent is acknowledged; raises if anything was not."""
        await self.start()
        await self._core.leave_transaction(self._timeout_ms(timeout_ms))

    async def commit_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Sends the remaining records and makes the whole transaction visible at once."""
        await self.start()
        await self._core.commit_transaction(self._timeout_ms(timeout_ms))

    async def abort_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Ends the transaction; consumers with `isolation.level=read_committed` never see its records."""
        await self.start()
        await self._core.abort_transaction(self._timeout_ms(timeout_ms))

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[Any, Any],
        group: Any,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits the offsets (the next to read, by topic and partition) of a group together with the transaction."""
        await self.start()
        await self._core.send_offsets(offsets, group, self._timeout_ms(timeout_ms))

    def transaction(self) -> AsyncTransaction:
        """A transaction as a block: committed at its end, aborted if it raises."""
        return AsyncTransaction(self)

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Delivers the remaining records, for at most `timeout_ms`, and closes. Aborts an open transaction."""
        core = self._core
        if core.is_closed:
            return
        core.begin_close()
        if self._loop is not None:
            delivery_ms = core.settings.delivery_timeout_ms
            await core.close_gracefully(delivery_ms if timeout_ms is None else timeout_ms)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _timeout_ms(self, timeout_ms: float | None) -> float:
        return self._core.settings.max_block_ms if timeout_ms is None else timeout_ms

    async def _learn_partition(self, topic: TopicQueue, partition: int | None) -> PartitionQueue:
        core = self._core
        if isinstance(partition, int) and partition >= 0:
            await core.learn_partitions(topic.name, core.settings.max_block_ms)
            found = core.queue_for(topic, partition, None, None)
            if found is not None:
                return found
        raise core.no_such_partition(topic, partition)

    async def _wait_for_room(self, size_bytes: int) -> None:
        """Waits for memory, which is the caller's then; BufferExhausted after `max.block.ms`."""
        core = self._core
        pool = core.accumulator.pool
        granted = asyncio.Event()
        waiter = Waiter(size_bytes, granted.set)
        pool.wait(waiter)
        core.wake()
        try:
            async with asyncio.timeout(core.settings.max_block_ms / 1000):
                await granted.wait()
        except TimeoutError:
            pass
        except BaseException:
            pool.give_up(waiter)
            raise
        if waiter.is_granted and core.refusal is None:
            return
        pool.give_up(waiter)
        if core.refusal is not None:
            core.refuse()
        raise BufferExhausted(core.no_room(size_bytes))


class AsyncTransaction:
    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> AsyncProducer:
        await self._producer.begin_transaction()
        return self._producer

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()
