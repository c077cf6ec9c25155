"""The producer.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        future = producer.send("orders", b"value", key=b"key")
        print(future.result().offset)

`send` and `send_many` do their work in the caller's thread and return at once; a thread of the producer's own sends
(see `sender`). They wait, up to `max.block.ms`, only for a topic that is not known yet and for memory. Any thread may
call any method.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from mypy_extensions import i64, mypyc_attr

from barnabas.client.failures import BufferExhausted, CalledInCallback, ClientClosed, SerializationError
from barnabas.client.loop_thread import LoopThread
from barnabas.client.producer.accumulator import TopicQueue
from barnabas.client.producer.batches import BATCH_OVERHEAD_BYTES, PartitionQueue, record_bound_bytes
from barnabas.client.producer.buffer_pool import Waiter
from barnabas.client.producer.core import ProducerCore
from barnabas.client.producer.futures import OnDelivery, SendFuture, SendManyFuture, wait_for
from barnabas.client.producer.many import ManyAppender, many_records
from barnabas.client.producer.records import HeadersLike, SharedTransaction
from barnabas.client.producer.serializers import to_headers
from barnabas.client.settings import ProducerSettings
from barnabas.client.timeouts import checked_timeout_ms
from barnabas.errors import RequestTimedOut
from barnabas.records.record import NO_HEADERS, Headers

CLOSE_GRACE_MS: Final = 5_000


@mypyc_attr(allow_interpreted_subclasses=True)
class Producer:
    """Sends records to topics. Settings have Kafka's names, as keywords with underscores or a mapping with dots."""

    def __init__(self, settings: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        self._core: ProducerCore = ProducerCore(ProducerSettings(settings, **keywords))
        self._background: LoopThread = LoopThread(
            f"barnabas-{self._core.settings.client_id}", self._core.forked
        )
        try:
            self._background.call(self._core.start(self._background.loop.call_soon_threadsafe))
        except BaseException:
            self._background.close()
            raise

    def send(
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
        """Sends a record; the result of the future is its position.

        `on_delivery` is called with its RecordMetadata and None, or with None and the error, on the producer's thread.
        """
        core = self._core
        if core.refusal is not None:
            core.refuse()
        if core.interceptors:
            record = core.intercept(topic, value, key, partition, timestamp_ms, headers)
            topic, value, key, partition, timestamp_ms, headers = record
        value_bytes: bytes | None
        key_bytes: bytes | None = None
        record_headers: Headers = NO_HEADERS
        if isinstance(value, bytes) and core.value_serializer is None:
            value_bytes = value
        else:
            value_bytes = None if value is None else core.value_bytes(topic, value)
        if key is not None:
            if isinstance(key, bytes) and core.key_serializer is None:
                key_bytes = key
            else:
                key_bytes = core.key_bytes(topic, key)
        if headers:
            record_headers = to_headers(headers)
        topic_queue = core.accumulator.topics.get(topic)
        if topic_queue is None:
            topic_queue = self._learn(topic)
        queue = core.queue_for(topic_queue, partition, key_bytes, value_bytes)
        if queue is None:
            queue = self._learn_partition(topic_queue, partition)
        future = core.append(topic_queue, queue, timestamp_ms, key_bytes, value_bytes, record_headers, 0)
        if future is None:
            future = self._append_when_room(
                topic_queue, queue, timestamp_ms, key_bytes, value_bytes, record_headers
            )
        if on_delivery is not None or core.interceptors:
            core.on_done(future, on_delivery)
        return future

    def send_many(
        self,
        topic: str,
        records: Any,
        *,
        keys: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike | None = None,
    ) -> SendManyFuture:
        """Sends many records at once, at a far lower cost per record than `send`; one future covers all of them.

        Records are values, (key, value) or (key, value, headers) tuples, dicts with the names of `send`'s arguments, or
        Arrow: an array of values, or a table with the columns value, key, partition, timestamp_ms and headers (lists of
        structs of key and value). `keys` may accompany values. If one record cannot be serialized or is too large, none
        is sent.
        """
        core = self._core
        if core.refusal is not None:
            core.refuse()
        if core.interceptors:
            raise SerializationError(
                "send_many runs no interceptors: use send, or leave interceptor.classes out"
            )
        topic_queue = core.accumulator.topics.get(topic)
        if topic_queue is None:
            topic_queue = self._learn(topic)
        if partition is not None and core.queue_for(topic_queue, partition, None, None) is None:
            self._learn_partition(topic_queue, partition)
        made = many_records(core, topic_queue, records, keys, headers)
        highest = made.highest_partition
        if highest is not None and highest >= len(topic_queue.partitions):
            self._learn_partition(topic_queue, highest)
        appender = ManyAppender(core, topic_queue, partition, timestamp_ms, made)
        reserved_bytes: i64 = 0
        while not appender.append(reserved_bytes):
            reserved_bytes = appender.next_bound_bytes()
            try:
                self._wait_for_room(reserved_bytes)
            except BufferExhausted as error:
                raise BufferExhausted(
                    f"{error}; {appender.future.count} of {made.count} were taken"
                ) from None
        return appender.future

    def flush(self, timeout: object = None, *, timeout_ms: float | None = None) -> None:
        """Sends everything at once and waits until all records are acknowledged or have failed, at most
        `timeout_ms`.

        Does not raise errors of records: the futures have them.
        """
        timeout_ms = checked_timeout_ms("flush", timeout, timeout_ms)
        self._check_thread("flush")
        if self._background.is_closed:
            # All is delivered or given up.
            return
        deadline_s = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        pending = self._core.begin_flush()
        try:
            while pending:
                batch = pending.pop()
                left_s = None if deadline_s is None else max(deadline_s - monotonic(), 0.0)
                if not wait_for(batch, left_s, until_told=True):
                    raise RequestTimedOut(f"not all records were acknowledged within {timeout_ms:g} ms")
                if batch.parts is not None:
                    pending.extend(batch.parts)
        finally:
            self._core.end_flush()

    def metrics(self) -> dict[str, float]:
        """Metrics of this producer, by the names of Kafka's own metrics."""
        return self._core.metrics()

    def partitions_for(self, topic: str) -> int:
        """How many partitions a topic has."""
        queue = self._core.accumulator.topics.get(topic)
        return len((queue or self._learn(topic)).partitions)

    def init_transactions(self, timeout: object = None, *, timeout_ms: float | None = None) -> None:
        """Fences other producers of the transactional id and ends their open transaction; the first begin does this
        too.

        A repeated call between transactions increases the epoch, or raises if another producer has taken over.
        """
        self._call(self._core.init_transactions(self._timeout_ms("init_transactions", timeout, timeout_ms)))

    def begin_transaction(self) -> None:
        """Begins a transaction: it holds all records and offsets until it is committed or aborted."""
        self._call(self._core.begin_transaction())

    def share_transaction(self) -> SharedTransaction:
        """The data that other producers of this transactional id need for `join_transaction`; it may be pickled."""
        shared: SharedTransaction = self._call(self._core.share_transaction())
        return shared

    def join_transaction(self, shared: SharedTransaction) -> None:
        """Sends into another producer's transaction, which only that producer ends.

        Only one producer of the transaction may write to a partition. An epoch serves one shared transaction: the owner
        calls `init_transactions` before each.
        """
        self._call(self._core.join_transaction(shared))

    def leave_transaction(self, timeout: object = None, *, timeout_ms: float | None = None) -> None:
        """Waits until all that was sent is acknowledged; raises if anything was not."""
        self._call(self._core.leave_transaction(self._timeout_ms("leave_transaction", timeout, timeout_ms)))

    def commit_transaction(self, timeout: object = None, *, timeout_ms: float | None = None) -> None:
        """Sends the remaining records and makes the whole transaction visible at once; may be repeated after a
        time-out.
        """
        self._call(self._core.commit_transaction(self._timeout_ms("commit_transaction", timeout, timeout_ms)))

    def abort_transaction(self, timeout: object = None, *, timeout_ms: float | None = None) -> None:
        """Ends the transaction; consumers with `isolation.level=read_committed` never see its records."""
        self._call(self._core.abort_transaction(self._timeout_ms("abort_transaction", timeout, timeout_ms)))

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[Any, Any],
        group: Any,
        timeout: object = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits the offsets (the next to read, by topic and partition) of a group together with the transaction.

        `group` is `consumer.group_metadata()`, or the id of a group that has no members.
        """
        self._call(
            self._core.send_offsets(
                offsets, group, self._timeout_ms("send_offsets_to_transaction", timeout, timeout_ms)
            )
        )

    def transaction(self) -> Transaction:
        """A transaction as a block: committed at its end, aborted if it raises."""
        return Transaction(self)

    def close(self, timeout: object = None, *, timeout_ms: float | None = None) -> None:
        """Delivers the remaining records, for at most `timeout_ms`, and closes. Aborts an open transaction."""
        timeout_ms = checked_timeout_ms("close", timeout, timeout_ms)
        core = self._core
        if self._background.is_closed:
            return
        core.begin_close()
        wait_ms = float(core.settings.delivery_timeout_ms)
        if timeout_ms is not None:
            wait_ms = timeout_ms
        if self._background.is_current():
            # In a callback: this thread cannot wait for its own work.
            self._background.loop.create_task(self._close_later())
            return
        try:
            self._background.call(core.close_gracefully(wait_ms), wait_ms + CLOSE_GRACE_MS)
        except ClientClosed:
            # Another thread was faster.
            pass
        finally:
            self._background.close()

    async def _close_later(self) -> None:
        await self._core.close_gracefully(0)
        self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Producer {self._core.settings.client_id}>"

    def _timeout_ms(self, method: str, timeout: object, timeout_ms: float | None) -> float:
        timeout_ms = checked_timeout_ms(method, timeout, timeout_ms)
        return self._core.settings.max_block_ms if timeout_ms is None else timeout_ms

    def _call(self, work: Any) -> Any:
        try:
            if self._background.is_closed:
                self._core.refuse()
            self._check_thread("transactions")
        except BaseException:
            work.close()
            raise
        return self._background.call(work)

    def _check_thread(self, what: str) -> None:
        """A callback runs on the producer's thread, so it cannot wait for work of that thread."""
        if self._background.is_current():
            raise CalledInCallback(
                f"{what} cannot be waited for in a callback of the producer: do it in another thread"
            )

    def _learn(self, topic: str) -> TopicQueue:
        core = self._core
        self._check_thread(f"topic {topic!r}, of which nothing is known yet,")
        found: TopicQueue = self._background.call(core.learn(topic, core.settings.max_block_ms))
        return found

    def _learn_partition(self, topic: TopicQueue, partition: int | None) -> PartitionQueue:
        """A partition that the topic may have got lately."""
        core = self._core
        if isinstance(partition, int) and partition >= 0:
            self._check_thread(f"partition {partition} of topic {topic.name!r}")
            self._background.call(core.learn_partitions(topic.name, core.settings.max_block_ms))
            found = core.queue_for(topic, partition, None, None)
            if found is not None:
                return found
        raise core.no_such_partition(topic, partition)

    def _append_when_room(
        self,
        topic: TopicQueue,
        queue: PartitionQueue,
        timestamp_ms: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> SendFuture:
        reserved_bytes = record_bound_bytes(key, value, headers) + BATCH_OVERHEAD_BYTES
        self._wait_for_room(reserved_bytes)
        future = self._core.append(topic, queue, timestamp_ms, key, value, headers, reserved_bytes)
        assert future is not None
        return future

    def _wait_for_room(self, size_bytes: i64) -> None:
        """Waits for memory, which is the caller's then; BufferExhausted after `max.block.ms`."""
        core = self._core
        self._check_thread("memory")
        pool = core.accumulator.pool
        granted = threading.Event()
        waiter = Waiter(size_bytes, granted.set)
        lock = core.accumulator.lock
        lock.acquire()
        try:
            pool.wait(waiter)
        finally:
            lock.release()
        try:
            core.wake()
            granted.wait(core.settings.max_block_ms / 1000)
        except BaseException:
            lock.acquire()
            try:
                pool.give_up(waiter)
            finally:
                lock.release()
            raise
        lock.acquire()
        try:
            if waiter.is_granted and core.refusal is None:
                return
            pool.give_up(waiter)
        finally:
            lock.release()
        if core.refusal is not None:
            core.refuse()
        raise BufferExhausted(core.no_room(size_bytes))


class Transaction:
    """A transaction as a block, see `Producer.transaction`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __enter__(self) -> Producer:
        self._producer.begin_transaction()
        return self._producer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()
