"""Records that wait for the sender: one queue of batches per partition, with bounded memory.

Callers append in their own threads; the sender takes batches on its loop. One lock guards all of it. A thread holds it
for the time to copy one record (or, for many, one batch), and nothing slow happens under it.
"""

from __future__ import annotations

import random
from time import monotonic

from librt.threading import Lock
from librt.time import time
from mypy_extensions import i64

from barnabas.client.producer.batches import (
    BATCH_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    PartitionQueue,
    ProducerBatch,
)
from barnabas.client.producer.buffer_pool import BufferPool
from barnabas.client.producer.bytes_columns import BytesColumn
from barnabas.client.producer.futures import SendManyFuture
from barnabas.client.producer.partitioners import partition_for_key
from barnabas.model import TopicPartition
from barnabas.records.record import NO_HEADERS, Headers


class TopicQueue:
    """The partitions of one topic, and the one that records without a key go to now."""

    __slots__ = ("available", "name", "partitions", "queues", "sticky", "sticky_bytes", "topic_id")

    name: str
    topic_id: bytes
    queues: list[PartitionQueue]
    partitions: list[PartitionQueue]
    available: list[PartitionQueue]
    sticky: PartitionQueue
    sticky_bytes: i64

    def __init__(self, name: str, topic_id: bytes, partitions: list[PartitionQueue]) -> None:
        self.name = name
        self.topic_id = topic_id
        # All queues ever created: a recreated topic may have fewer partitions, and later more again.
        self.queues = list(partitions)
        self.partitions = partitions
        # Those that have a leader; all if none has.
        self.available = partitions
        self.sticky = partitions[0]
        self.sticky_bytes = 0


class Accumulator:
    __slots__ = (
        "_batch_bytes",
        "_ignore_keys",
        "_is_adaptive",
        "_max_batch_bytes",
        "_random",
        "active",
        "flushes",
        "incomplete",
        "is_closing",
        "is_wake_due",
        "lock",
        "pool",
        "topics",
    )

    lock: Lock
    pool: BufferPool
    topics: dict[str, TopicQueue]
    _batch_bytes: i64
    _max_batch_bytes: i64
    _ignore_keys: bool
    _is_adaptive: bool

    def __init__(
        self,
        *,
        buffer_bytes: int,
        batch_bytes: int,
        max_batch_bytes: int,
        ignore_keys: bool = False,
        is_adaptive: bool = True,
        chooser: random.Random | None = None,
    ) -> None:
        self.lock = Lock()
        self.pool = BufferPool(buffer_bytes)
        self.topics = {}
        # Queues with batches that wait; and all batches that are not done.
        self.active: dict[PartitionQueue, None] = {}
        self.incomplete: dict[ProducerBatch, None] = {}
        # How many wait for everything to be sent.
        self.flushes = 0
        self.is_closing = False
        # A batch has started or has become ready: the appending thread wakes the sender, after the lock is free.
        self.is_wake_due = False
        self._batch_bytes = batch_bytes
        self._max_batch_bytes = max(batch_bytes, max_batch_bytes)
        self._ignore_keys = ignore_keys
        self._is_adaptive = is_adaptive
        self._random = chooser or random.Random()

    @property
    def batch_bytes(self) -> int:
        return self._batch_bytes

    @property
    def is_all_ready(self) -> bool:
        """Whether batches need not wait for more records: a thread flushes, closes, or waits for memory."""
        return self.flushes > 0 or self.is_closing or self.pool.is_exhausted

    def set_topic(self, name: str, leaders: list[bool], topic_id: bytes = b"") -> TopicQueue:
        """Takes the number of partitions of a topic, and those with a leader. Only a recreated topic may have fewer."""
        self.lock.acquire()
        try:
            topic = self.topics.get(name)
            if topic is None:
                queues = [self._new_queue(name, index) for index in range(len(leaders))]
                topic = TopicQueue(name, topic_id, queues)
                self.topics[name] = topic
                self._change_sticky(topic)
            if topic_id != topic.topic_id or len(leaders) > len(topic.partitions):
                topic.topic_id = topic_id
                while len(topic.queues) < len(leaders):
                    topic.queues.append(self._new_queue(name, len(topic.queues)))
                topic.partitions = topic.queues[: len(leaders)]
            topic.available = [
                queue for queue, has_leader in zip(topic.partitions, leaders, strict=False) if has_leader
            ] or topic.partitions
            if topic.sticky.partition >= len(topic.partitions):
                self._change_sticky(topic)
            return topic
        finally:
            self.lock.release()

    def _new_queue(self, topic: str, partition: int) -> PartitionQueue:
        return PartitionQueue(TopicPartition(topic, partition), self.lock, self._max_batch_bytes)

    def choose(self, topic: TopicQueue, key: bytes | None) -> PartitionQueue:
        """The partition of a record, by its key or as it comes."""
        if key is None or self._ignore_keys:
            return topic.sticky
        partitions = topic.partitions
        return partitions[partition_for_key(key, len(partitions))]

    def append(
        self,
        topic: TopicQueue,
        queue: PartitionQueue,
        timestamp_ms: i64,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        bound_bytes: i64,
    ) -> ProducerBatch:
        """Adds a record, for which there is room; the lock is held. The record is the last of the batch."""
        batch = queue.open
        if batch is None or batch.size_bytes + bound_bytes > queue.max_batch_bytes:
            batch = self._new_batch(queue)
        added = batch.append(timestamp_ms, key, value, headers)
        self.pool.available_bytes -= added
        queue.waiting_bytes += added
        size = batch.size_bytes
        if size >= self._batch_bytes and size - added < self._batch_bytes:
            self.is_wake_due = True
        if queue is topic.sticky:
            topic.sticky_bytes += added
            if topic.sticky_bytes >= self._batch_bytes:
                self._change_sticky(topic)
        return batch

    def append_values(
        self,
        topic: TopicQueue,
        chosen: PartitionQueue | None,
        values: BytesColumn,
        start: i64,
        timestamp_ms: i64,
        future: SendManyFuture,
        reserved_bytes: i64,
    ) -> i64:
        """Adds values without keys from `start` on, one batch after the other. Returns where it stopped for lack of
        memory.

        The values go to the given partition, or are distributed. `reserved_bytes` were waited for, and are returned:
        the first value has room even if others wait.
        """
        end = values.count
        position = start
        pool = self.pool
        self.lock.acquire()
        try:
            pool.available_bytes += reserved_bytes
            while position < end:
                room = pool.available_bytes - BATCH_OVERHEAD_BYTES
                if pool.is_exhausted:
                    # Others wait for the rest.
                    room = reserved_bytes - BATCH_OVERHEAD_BYTES
                reserved_bytes = 0
                queue = topic.sticky if chosen is None else chosen
                value = values.at(position)
                bound: i64 = RECORD_OVERHEAD_BYTES
                if value is not None:
                    bound += len(value)
                if bound > room:
                    break
                batch = queue.open
                if batch is None or batch.size_bytes + bound > queue.max_batch_bytes:
                    batch = self._new_batch(queue)
                # As much as goes into this batch without looking at anything else again.
                wanted = self._batch_bytes - topic.sticky_bytes
                left = queue.max_batch_bytes - batch.size_bytes
                if chosen is not None or len(topic.partitions) == 1:
                    wanted = left
                if left > room:
                    left = room
                first = position
                index = batch.record_count
                taken: i64 = 0
                while True:
                    taken += batch.append(timestamp_ms, None, value, NO_HEADERS)
                    position += 1
                    if position == end or taken >= wanted:
                        break
                    value = values.at(position)
                    bound = RECORD_OVERHEAD_BYTES
                    if value is not None:
                        bound += len(value)
                    if taken + bound > left:
                        break
                pool.available_bytes -= taken
                queue.waiting_bytes += taken
                future.add(batch, index, position - first, timestamp_ms)
                if chosen is None:
                    topic.sticky_bytes += taken
                    if topic.sticky_bytes >= self._batch_bytes:
                        self._change_sticky(topic)
            self.is_wake_due = True
        finally:
            self.lock.release()
        return position

    def _new_batch(self, queue: PartitionQueue) -> ProducerBatch:
        before = queue.open
        if before is not None:
            before.is_closed = True
        batch = ProducerBatch(queue, monotonic())
        queue.open = batch
        queue.batches.append(batch)
        self.active[queue] = None
        self.incomplete[batch] = None
        queue.waiting_bytes += batch.size_bytes
        self.pool.available_bytes -= BATCH_OVERHEAD_BYTES
        self.is_wake_due = True
        return batch

    def _change_sticky(self, topic: TopicQueue) -> None:
        topic.sticky_bytes = 0
        available = topic.available
        count = len(available)
        if count == 1:
            topic.sticky = available[0]
            return
        chosen = available[int(self._random.random() * count)]
        if self._is_adaptive:
            other = available[int(self._random.random() * count)]
            if other.waiting_bytes < chosen.waiting_bytes:
                chosen = other
        topic.sticky = chosen

    def remove_waiting(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Takes a batch out of its queue; the lock is held. It takes no more records."""
        batch.is_closed = True
        if queue.open is batch:
            queue.open = None
        if queue.batches and queue.batches[0] is batch:
            queue.batches.popleft()
        else:
            queue.batches.remove(batch)
        queue.waiting_bytes -= batch.size_bytes
        if not queue.batches:
            queue.waiting_bytes = 0
            self.active.pop(queue, None)

    def put_back(self, batch: ProducerBatch) -> None:
        """Queues a batch to be sent again; the lock is held."""
        batch.queue.put_back(batch)
        self.active[batch.queue] = None


def now_ms() -> i64:
    """The wall clock, read for each record."""
    return i64(time() * 1000.0)
