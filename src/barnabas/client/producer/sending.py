"""`send` and `send_many` of the producer: they run in the caller's thread, once a record, and are compiled.

`Producer` adds what waits. It is plain Python, because a compiled method has no annotations for help() and editors.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from mypy_extensions import i64, mypyc_attr

from barnabas.client.failures import BufferExhausted, CalledInCallback, SerializationError
from barnabas.client.loop_thread import LoopThread
from barnabas.client.producer.accumulator import TopicQueue
from barnabas.client.producer.batches import BATCH_OVERHEAD_BYTES, PartitionQueue, record_bound_bytes
from barnabas.client.producer.buffer_pool import Waiter
from barnabas.client.producer.core import ProducerCore
from barnabas.client.producer.futures import OnDelivery, SendFuture, SendManyFuture
from barnabas.client.producer.many import ManyAppender, many_records
from barnabas.client.producer.records import HeadersLike
from barnabas.client.producer.serializers import to_headers
from barnabas.client.settings import ProducerSettings
from barnabas.records.record import NO_HEADERS, Headers


@mypyc_attr(allow_interpreted_subclasses=True)
class SendingProducer:
    """The part of the producer that works once a record."""

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

    def _check_thread(self, what: str) -> None:
        """A callback runs on the producer's thread, so it cannot wait for work of that thread."""
        if self._background.is_current():
            raise CalledInCallback(
                f"{what} cannot be waited for in a callback of the producer: do it in another thread"
            )

    def _learn(self, topic: str, timeout_ms: float | None = None, *, creates: bool = True) -> TopicQueue:
        core = self._core
        self._check_thread(f"topic {topic!r}, of which nothing is known yet,")
        wait_ms: float = core.settings.max_block_ms if timeout_ms is None else timeout_ms
        found: TopicQueue = self._background.call(core.learn(topic, wait_ms, creates=creates))
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
