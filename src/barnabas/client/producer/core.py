"""Shared parts of the blocking and the asyncio producer: prepared settings, appending of records, the loop's side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final

from mypy_extensions import i64

from barnabas.client.connections.brokers import Brokers
from barnabas.client.connections.cluster import NO_LEADER, Cluster, TopicInfo
from barnabas.client.failures import ClientClosed, RecordTooLarge, SerializationError, TransactionMisuse
from barnabas.client.loop_thread import FORKED
from barnabas.client.producer.accumulator import Accumulator, TopicQueue, now_ms
from barnabas.client.producer.batches import (
    BATCH_OVERHEAD_BYTES,
    PartitionQueue,
    ProducerBatch,
    record_bound_bytes,
)
from barnabas.client.producer.futures import OnDelivery, SendFuture
from barnabas.client.producer.partitioners import Partitioner, partitioner_for
from barnabas.client.producer.records import HeadersLike, OutgoingRecord, SharedTransaction
from barnabas.client.producer.sender import REQUEST_OVERHEAD_BYTES, Sender
from barnabas.client.producer.serializers import Serializer, serialized, serializer_for, to_bytes
from barnabas.client.producer.transaction_requests import group_of, offsets_of
from barnabas.client.producer.transactions import TransactionManager, TransactionState
from barnabas.client.settings import ProducerSettings
from barnabas.errors import InvalidConfig, KafkaError, UnknownTopicOrPartition
from barnabas.records.layout import BATCH_HEADER_BYTES
from barnabas.records.record import Headers

log = logging.getLogger(__name__)


class ProducerCore:
    """`start` creates the loop's side, on the loop."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.settings: Final = settings
        self.value_serializer: Serializer | None = serializer_for(
            settings.value_serializer, "value.serializer"
        )
        self.key_serializer: Serializer | None = serializer_for(settings.key_serializer, "key.serializer")
        self.partitioner: Partitioner | None = partitioner_for(settings.partitioner_class)
        self.interceptors: list[Any] = _interceptors(settings.interceptor_classes)
        # A batch does not grow beyond this size; a single record may be as large as a request.
        self.max_record_bytes: i64 = min(
            settings.max_request_size - BATCH_HEADER_BYTES, settings.buffer_memory - BATCH_OVERHEAD_BYTES
        )
        self.accumulator: Final = Accumulator(
            buffer_bytes=settings.buffer_memory,
            batch_bytes=settings.batch_size,
            max_batch_bytes=max(settings.max_request_size - REQUEST_OVERHEAD_BYTES, 1),
            ignore_keys=settings.partitioner_ignore_keys,
            is_adaptive=settings.partitioner_adaptive_partitioning_enable,
        )
        # Why nothing can be sent now; None if it can.
        self.refusal: KafkaError | None = None
        self.is_closed = False
        self.sender: Sender | None = None
        self.transactions: TransactionManager | None = None
        # Topics that were not used for metadata.max.idle.ms: the next send asks for their metadata again, and the
        # sequences continue.
        self._idle_topics: dict[str, TopicQueue] = {}

    def metrics(self) -> dict[str, float]:
        """With the names of Kafka's own metrics, where it has them."""
        accumulator = self.accumulator
        found: dict[str, float] = {
            "batches-in-progress": len(accumulator.incomplete),
            "buffer-available-bytes": float(accumulator.pool.available_bytes),
            "buffer-total-bytes": float(accumulator.pool.total_bytes),
        }
        if self.sender is not None:
            delivery = self.sender.delivery
            found |= self.brokers.metrics()
            now_s = monotonic()
            found |= self.sender.batch_size.metrics(now_s) | self.sender.queue_time.metrics(now_s)
            found["record-error-total"] = delivery.records_failed
            found["record-retry-total"] = delivery.records_retried
            found["record-send-total"] = delivery.records_sent
        return found

    async def start(self, post: Callable[[Callable[[], object]], object]) -> None:
        settings = self.settings
        self.brokers = Brokers(settings)
        self.cluster = Cluster(
            settings,
            self.brokers,
            allow_auto_topic_creation=True,
            needed=self._written_topics,
            max_idle_ms=settings.metadata_max_idle_ms,
        )
        if settings.enable_idempotence:
            self.transactions = TransactionManager(settings, self.brokers, self.accumulator)
            self.transactions.on_change = self._set_refusal
        self.sender = Sender(settings, self.brokers, self.cluster, self.accumulator, self.transactions, post)
        if self.transactions is not None:
            self.transactions.wake = self.sender.wake
        self.cluster.on_update.append(self._take_topics)
        self._set_refusal()

    async def stop(self) -> None:
        """Ends everything on the loop; undelivered records fail."""
        if self.sender is not None:
            self.sender.stop()
            self.sender.give_up_all(ClientClosed("the producer was closed before the record was delivered"))
            if self.transactions is not None:
                await self.transactions.close()
            await self.cluster.close()
            await self.brokers.close()

    def _set_refusal(self) -> None:
        transactions = self.transactions
        if self.is_closed:
            self.refusal = ClientClosed("the producer is closed: make another one")
        elif transactions is None:
            self.refusal = None
        elif transactions.error is not None:
            hint = "make another producer" if transactions.fatal else "abort the transaction"
            self.refusal = type(transactions.error)(f"nothing can be sent, {hint}: {transactions.error}")
        elif transactions.is_transactional and transactions.state is not TransactionState.IN_TRANSACTION:
            self.refusal = TransactionMisuse(
                f"a producer with a transactional.id sends within a transaction, and is {transactions.state}:"
                " use `with producer.transaction():`"
            )
        else:
            self.refusal = None

    def refuse(self) -> None:
        refusal = self.refusal
        assert refusal is not None
        raise type(refusal)(str(refusal))

    def begin_close(self) -> None:
        """Accepts no more records; existing batches become ready."""
        self.accumulator.lock.acquire()
        try:
            self.is_closed = True
            self._set_refusal()
            self.accumulator.is_closing = True
            self.accumulator.pool.wake_all()
        finally:
            self.accumulator.lock.release()

    def forked(self) -> None:
        """In a forked process no thread sends. The lock may be held there for ever, so it is not used."""
        self.is_closed = True
        self.refusal = ClientClosed(FORKED)

    async def learn(self, topic: str, timeout_ms: float, *, creates: bool = True) -> TopicQueue:
        """The topic's partitions, asked for if need be.

        A topic to write to may be created, and is waited for. Without `creates`, a missing topic is an error.
        """
        if not isinstance(topic, str):
            raise UnknownTopicOrPartition(f"a topic is named by text, and not by {topic!r}")
        known = self.accumulator.topics.get(topic)
        if known is not None:
            return known
        if creates:
            return self._take_topic(await self.cluster.wait_for_topic(topic, timeout_ms))
        return self._take_topic(await self.cluster.find_topic(topic, timeout_ms))

    async def learn_partitions(self, topic: str, timeout_ms: float) -> None:
        """Asks again how many partitions a topic has."""
        with self.cluster.awaiting([topic]):
            await self.cluster.refresh(timeout_ms=timeout_ms)
            info = self.cluster.topic(topic)
            if info is not None and info.partitions:
                self._take_topic(info)

    def _written_topics(self) -> set[str]:
        accumulator = self.accumulator
        accumulator.lock.acquire()
        try:
            return {batch.queue.tp.topic for batch in accumulator.incomplete}
        finally:
            accumulator.lock.release()

    def _take_topics(self) -> None:
        topics = self.accumulator.topics
        for name in list(topics):
            info = self.cluster.topic(name)
            if info is None:
                self._idle_topics[name] = topics.pop(name)
            elif info.partitions:
                self._take_topic(info)

    def _take_topic(self, info: TopicInfo) -> TopicQueue:
        idle = self._idle_topics.pop(info.name, None)
        if idle is not None:
            self.accumulator.topics[info.name] = idle
        leaders = [each.leader != NO_LEADER for each in info.partitions]
        return self.accumulator.set_topic(info.name, leaders, info.topic_id)

    def value_bytes(self, topic: str, value: object) -> bytes | None:
        if self.value_serializer is not None:
            return serialized(self.value_serializer, topic, value, "value")
        return to_bytes(value, "value")

    def key_bytes(self, topic: str, key: object) -> bytes | None:
        if self.key_serializer is not None:
            return serialized(self.key_serializer, topic, key, "key")
        return to_bytes(key, "key")

    def intercept(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike | None,
    ) -> OutgoingRecord:
        """The record after the interceptors.

        If one fails, the error is logged and the record stays unchanged, as in Kafka.
        """
        record = OutgoingRecord(topic, value, key, partition, timestamp_ms, headers)
        for interceptor in self.interceptors:
            if hasattr(interceptor, "on_send"):
                try:
                    record = interceptor.on_send(record)
                except Exception:
                    log.exception("an interceptor of a producer failed")
        return record

    def acknowledge(self, future: SendFuture) -> None:
        for interceptor in self.interceptors:
            if hasattr(interceptor, "on_acknowledgement"):
                future.deliver(interceptor.on_acknowledgement)

    def queue_for(
        self, topic: TopicQueue, partition: int | None, key: bytes | None, value: bytes | None
    ) -> PartitionQueue | None:
        """The queue of a record's partition; None if the topic has no such partition as far as is known."""
        partitions = topic.partitions
        if partition is None:
            if self.partitioner is None:
                return self.accumulator.choose(topic, key)
            partition = self.partitioner(topic.name, key, value, len(partitions))
            if not 0 <= partition < len(partitions):
                raise UnknownTopicOrPartition(
                    f"the partitioner gave {partition!r}, and {topic.name!r} has partitions 0 to {len(partitions) - 1}"
                )
        else:
            check_number(partition, "partition")
        if 0 <= partition < len(partitions):
            return partitions[partition]
        return None

    def no_such_partition(self, topic: TopicQueue, partition: int | None) -> UnknownTopicOrPartition:
        return UnknownTopicOrPartition(
            f"topic {topic.name!r} has partitions 0 to {len(topic.partitions) - 1}, and not {partition!r}"
        )

    def append(
        self,
        topic: TopicQueue,
        queue: PartitionQueue,
        timestamp_ms: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        reserved_bytes: i64,
    ) -> SendFuture | None:
        """Adds a record; None if there is no room for it now. `reserved_bytes` were waited for, and are given back."""
        bound = record_bound_bytes(key, value, headers)
        if bound > self.max_record_bytes:
            self.refuse_size(topic, bound)
        timestamp: i64 = now_ms() if timestamp_ms is None else given_timestamp(timestamp_ms)
        accumulator = self.accumulator
        pool = accumulator.pool
        accumulator.lock.acquire()
        try:
            if reserved_bytes:
                pool.available_bytes += reserved_bytes
            elif not pool.has_room(bound + BATCH_OVERHEAD_BYTES):
                return None
            if self.is_closed:
                self.refuse()
            batch = accumulator.append(topic, queue, timestamp, key, value, headers, bound)
            future = SendFuture(batch, batch.record_count - 1, timestamp)
            is_wake_due = accumulator.is_wake_due
            accumulator.is_wake_due = False
        finally:
            accumulator.lock.release()
        if is_wake_due:
            self.wake()
        return future

    def wake(self) -> None:
        assert self.sender is not None
        self.sender.wake()

    def refuse_size(self, topic: TopicQueue, bound: i64) -> None:
        settings = self.settings
        if settings.buffer_memory < settings.max_request_size:
            limit = f"buffer.memory={settings.buffer_memory}"
        else:
            limit = f"max.request.size={settings.max_request_size}"
        raise RecordTooLarge(
            f"a record of {bound} bytes for topic {topic.name!r} is larger than {limit}: raise that, or make it smaller"
        )

    def no_room(self, size_bytes: i64) -> str:
        return (
            f"no room for {size_bytes} bytes within {self.settings.max_block_ms} ms (max.block.ms): the"
            f" {self.settings.buffer_memory} bytes of buffer.memory are full of records that are not acknowledged"
        )

    def on_done(self, future: SendFuture, on_delivery: OnDelivery | None) -> None:
        if on_delivery is not None:
            future.when_done(_Delivery(future, on_delivery))
        if self.interceptors:
            future.when_done(_Acknowledgement(self, future))

    def begin_flush(self) -> list[ProducerBatch]:
        """Makes all batches ready; returns what to wait for. `end_flush` ends the flush."""
        accumulator = self.accumulator
        accumulator.lock.acquire()
        try:
            accumulator.flushes += 1
            pending = list(accumulator.incomplete)
        finally:
            accumulator.lock.release()
        self.wake()
        return pending

    def end_flush(self) -> None:
        accumulator = self.accumulator
        accumulator.lock.acquire()
        try:
            accumulator.flushes -= 1
        finally:
            accumulator.lock.release()

    async def flushed(self) -> None:
        """Waits until all current records are acknowledged or have failed."""
        pending = self.begin_flush()
        try:
            loop = asyncio.get_running_loop()
            for batch in pending:
                leaves = [batch]
                while leaves:
                    leaf = leaves.pop()
                    if leaf.parts is not None:
                        leaves.extend(leaf.parts)
                    elif not leaf.is_done:
                        waiter: asyncio.Future[None] = loop.create_future()
                        SendFuture(leaf, 0, 0).when_done(_Waking(waiter))
                        await waiter
                        leaves.append(leaf)
        finally:
            self.end_flush()

    async def init_transactions(self, timeout_ms: float) -> None:
        await self._transactional("init_transactions").init(timeout_ms)

    async def begin_transaction(self) -> None:
        transactions = self._transactional("begin_transaction")
        if transactions.state is TransactionState.UNINITIALIZED:
            await transactions.init(self.settings.max_block_ms)
        transactions.begin()

    async def share_transaction(self) -> SharedTransaction:
        return self._transactional("share_transaction").share()

    async def join_transaction(self, shared: SharedTransaction) -> None:
        self._transactional("join_transaction").join(shared)

    async def leave_transaction(self, timeout_ms: float) -> None:
        transactions = self._transactional("leave_transaction")
        flushed = asyncio.ensure_future(self.flushed())
        try:
            await transactions.leave(timeout_ms, flushed)
        finally:
            flushed.cancel()

    async def commit_transaction(self, timeout_ms: float) -> None:
        await self._commit(self._transactional("commit_transaction"), timeout_ms)

    async def _commit(self, transactions: TransactionManager, timeout_ms: float) -> None:
        flushed = asyncio.ensure_future(self.flushed())
        try:
            await transactions.commit(timeout_ms, flushed)
        finally:
            flushed.cancel()

    async def abort_transaction(self, timeout_ms: float) -> None:
        await self._abort(self._transactional("abort_transaction"), timeout_ms)

    async def _abort(self, transactions: TransactionManager, timeout_ms: float) -> None:
        assert self.sender is not None
        transactions.begin_abort()
        self.sender.give_up_all(TransactionMisuse("the transaction was aborted"), only_unsent=True)
        flushed = asyncio.ensure_future(self.flushed())
        try:
            await transactions.abort(timeout_ms, flushed)
        finally:
            flushed.cancel()

    async def send_offsets(self, offsets: Mapping[Any, Any], group: Any, timeout_ms: float) -> None:
        transactions = self._transactional("send_offsets_to_transaction")
        await transactions.send_offsets(offsets_of(offsets), group_of(group), timeout_ms)

    async def close_gracefully(self, timeout_ms: float) -> None:
        """Delivers the records, ends an open transaction, and stops, within this time in total."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                transactions = self.transactions
                if transactions is not None and transactions.is_transactional:
                    if not transactions.is_joined and transactions.state in (
                        TransactionState.IN_TRANSACTION,
                        TransactionState.ABORTABLE_ERROR,
                        TransactionState.ABORTING,
                    ):
                        await self._abort(transactions, timeout_ms)
                    elif transactions.state is TransactionState.COMMITTING:
                        # A commit that was interrupted by its time-out is still wanted.
                        await self._commit(transactions, timeout_ms)
                else:
                    await self.flushed()
        except (TimeoutError, KafkaError):
            pass
        finally:
            await self.stop()

    def _transactional(self, call: str) -> TransactionManager:
        if self.is_closed:
            self.refuse()
        transactions = self.transactions
        if transactions is None or not transactions.is_transactional:
            raise TransactionMisuse(
                f"{call} needs a producer with a transactional.id, such as transactional_id='orders'"
            )
        return transactions


class _Delivery:
    __slots__ = ("_future", "_on_delivery")

    def __init__(self, future: SendFuture, on_delivery: OnDelivery) -> None:
        self._future = future
        self._on_delivery = on_delivery

    def __call__(self) -> None:
        self._future._locate()
        self._future.deliver(self._on_delivery)


class _Acknowledgement:
    __slots__ = ("_core", "_future")

    def __init__(self, core: ProducerCore, future: SendFuture) -> None:
        self._core = core
        self._future = future

    def __call__(self) -> None:
        self._future._locate()
        self._core.acknowledge(self._future)


class _Waking:
    __slots__ = ("_waiter",)

    def __init__(self, waiter: asyncio.Future[None]) -> None:
        self._waiter = waiter

    def __call__(self) -> None:
        if not self._waiter.done():
            self._waiter.set_result(None)


def check_number(given: object, argument: str) -> None:
    """In the words of compiled code, which checks the types of arguments by itself."""
    if not isinstance(given, int):
        raise TypeError(f"{argument}: int or None object expected; got {type(given).__name__}")


def given_timestamp(timestamp_ms: int) -> i64:
    check_number(timestamp_ms, "timestamp_ms")
    timestamp: i64 = timestamp_ms
    if timestamp < 0:
        refuse_timestamp(timestamp)
    return timestamp


def refuse_timestamp(timestamp_ms: i64) -> None:
    raise SerializationError(f"a timestamp is in milliseconds since 1970, and not {timestamp_ms}")


def _interceptors(setting: Any) -> list[Any]:
    if setting is None:
        return []
    given: Sequence[Any] = setting if isinstance(setting, list | tuple) else [setting]
    made = [each() if isinstance(each, type) else each for each in given]
    for each in made:
        if not (hasattr(each, "on_send") or hasattr(each, "on_acknowledgement")):
            raise InvalidConfig(f"interceptor.classes: {each!r} has neither on_send nor on_acknowledgement")
    return made
