"""Batches on their way to a partition, and the queue in which they wait.

A batch accepts records until the sender takes it, not only until it has `batch.size` bytes: from then on the sender may
send it, but as long as it cannot, the batch grows, up to the size of a request. Batches are therefore as small as
latency needs and as large as throughput needs, without a setting to tune.

The lock of the accumulator guards everything here. A closed batch does not change any more.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from librt.strings import BytesWriter
from librt.threading import Lock
from mypy_extensions import i64

from barnabas.errors import KafkaError
from barnabas.model import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from barnabas.records.builder import with_batch_header, write_record
from barnabas.records.compression import compress
from barnabas.records.layout import BATCH_HEADER_BYTES, TRANSACTIONAL_BIT, CompressionType
from barnabas.records.reader import decode_batch
from barnabas.records.record import Headers, Record

# The memory of a batch in addition to its records: the header and our own objects.
BATCH_OVERHEAD_BYTES: Final = 512
# The largest that a record can be around its key, value and headers.
RECORD_OVERHEAD_BYTES: Final = 21
HEADER_OVERHEAD_BYTES: Final = 10

SEQUENCE_MASK: Final = 0x7FFF_FFFF


def record_bound_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> i64:
    """No record of these is larger."""
    size: i64 = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    if headers:
        for name, content in headers:
            size += HEADER_OVERHEAD_BYTES + len(name.encode())
            if content is not None:
                size += len(content)
    return size


class ProducerBatch:
    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "callbacks",
        "created_s",
        "encoded",
        "error",
        "event",
        "is_closed",
        "is_done",
        "is_on_the_wire",
        "is_told",
        "log_append_time_ms",
        "max_timestamp",
        "parts",
        "producer_epoch",
        "producer_id",
        "queue",
        "record_count",
        "record_errors",
        "retry_at_s",
        "sent_epoch",
        "sent_sequence",
        "sent_topic_id",
        "size_bytes",
        "writer",
    )

    queue: PartitionQueue
    created_s: float
    record_count: i64
    size_bytes: i64
    base_timestamp: i64
    max_timestamp: i64
    is_closed: bool
    is_on_the_wire: bool
    writer: BytesWriter | None
    encoded: bytes | None
    sent_topic_id: bytes
    sent_epoch: i64
    sent_sequence: i64
    attempts: i64
    retry_at_s: float
    producer_id: i64
    producer_epoch: i64
    base_sequence: i64
    is_done: bool
    is_told: bool
    base_offset: i64
    log_append_time_ms: i64
    error: KafkaError | None
    record_errors: dict[int, KafkaError] | None
    parts: list[ProducerBatch] | None
    event: threading.Event | None
    callbacks: list[tuple[i64, Callable[[], object]]] | None

    def __init__(self, queue: PartitionQueue, created_s: float) -> None:
        self.queue = queue
        self.created_s = created_s
        self.record_count = 0
        self.size_bytes = BATCH_HEADER_BYTES
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.is_closed = False
        self.is_on_the_wire = False
        self.writer = BytesWriter()
        self.encoded = None
        # As it was sent last; the id is empty if the request named the topic.
        self.sent_topic_id = b""
        self.sent_epoch = NO_PRODUCER_EPOCH
        self.sent_sequence = NO_SEQUENCE
        self.attempts = 0
        self.retry_at_s = 0.0
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        # Its result is known, and all callbacks have been called.
        self.is_done = False
        self.is_told = False
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self.error = None
        self.record_errors = None
        # The batches that this one was split into: from then on callers wait for them.
        self.parts = None
        self.event = None
        self.callbacks = None

    def append(self, timestamp: i64, key: bytes | None, value: bytes | None, headers: Headers) -> i64:
        """Adds a record; how many bytes it took."""
        writer = self.writer
        assert writer is not None
        count = self.record_count
        if count == 0:
            self.base_timestamp = timestamp
            self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        before: i64 = len(writer)
        write_record(writer, count, timestamp - self.base_timestamp, key, value, headers)
        added: i64 = len(writer) - before
        self.size_bytes += added
        self.record_count = count + 1
        return added

    @property
    def charged_bytes(self) -> int:
        return self.size_bytes - BATCH_HEADER_BYTES + BATCH_OVERHEAD_BYTES

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def was_renumbered(self) -> bool:
        """Whether it has another number now than it was sent with."""
        return self.sent_epoch != self.producer_epoch or self.sent_sequence != self.base_sequence

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.record_count - 1) & SEQUENCE_MASK

    def set_producer(self, producer_id: i64, producer_epoch: i64, base_sequence: i64) -> None:
        """Sets the producer and the sequence of the first record; encodes the batch again if necessary."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        encoded = self.encoded
        if encoded is not None:
            attributes = encoded[22]
            self.encoded = self._with_header(encoded[BATCH_HEADER_BYTES:], attributes)

    def build(self, compression: CompressionType, level: int | None, is_transactional: bool) -> bytes:
        """The bytes of the batch, which is closed. They are encoded once, unless the producer changes."""
        encoded = self.encoded
        if encoded is not None:
            return encoded
        writer = self.writer
        assert writer is not None
        assert self.is_closed
        body = writer.getvalue()
        self.writer = None
        attributes = int(compression)
        if compression is not CompressionType.NONE:
            body = compress(body, compression, level=level)
        if is_transactional:
            attributes |= TRANSACTIONAL_BIT
        encoded = self._with_header(body, attributes)
        self.encoded = encoded
        return encoded

    def _with_header(self, body: bytes, attributes: int) -> bytes:
        return with_batch_header(
            body,
            Offset(0),
            LeaderEpoch(NO_LEADER_EPOCH),
            attributes,
            self.record_count - 1,
            TimestampMs(self.base_timestamp),
            TimestampMs(self.max_timestamp),
            ProducerId(self.producer_id),
            ProducerEpoch(self.producer_epoch),
            self.base_sequence,
            self.record_count,
        )

    def split(self, target_bytes: i64) -> list[ProducerBatch]:
        """The same records in at least two batches of about that many bytes; they replace this batch."""
        assert self.encoded is not None
        assert self.record_count > 1
        records: list[Record] = decode_batch(self.encoded)
        parts: list[ProducerBatch] = []
        part: ProducerBatch | None = None
        half: i64 = (self.record_count + 1) // 2
        for record in records:
            bound = record_bound_bytes(record.key, record.value, record.headers)
            if part is None or part.size_bytes + bound > target_bytes or part.record_count >= half:
                part = ProducerBatch(self.queue, self.created_s)
                part.is_closed = True
                parts.append(part)
            part.append(record.timestamp, record.key, record.value, record.headers)
        return parts


class PartitionQueue:
    """The batches of one partition: those that wait, and those without a final result.

    `in_flight` has the batches that were sent and have no final result, by sequence if the producer is idempotent: a
    batch that is to be sent again is there and among those that wait.
    """

    __slots__ = (
        "batches",
        "in_flight",
        "is_unresolved",
        "last_acked_offset",
        "last_acked_sequence",
        "lock",
        "max_batch_bytes",
        "next_sequence",
        "open",
        "partition",
        "producer_epoch",
        "producer_id",
        "tp",
        "waiting_bytes",
    )

    tp: TopicPartition
    partition: i64
    lock: Lock
    batches: deque[ProducerBatch]
    open: ProducerBatch | None
    in_flight: list[ProducerBatch]
    waiting_bytes: i64
    max_batch_bytes: i64
    producer_id: i64
    producer_epoch: i64
    next_sequence: i64
    last_acked_sequence: i64
    last_acked_offset: i64
    is_unresolved: bool

    def __init__(self, tp: TopicPartition, lock: Lock, max_batch_bytes: i64) -> None:
        self.tp = tp
        self.partition = tp.partition
        self.lock = lock
        self.batches = deque()
        # The last of those that wait, if it takes records.
        self.open = None
        self.in_flight = []
        self.waiting_bytes = 0
        self.max_batch_bytes = max_batch_bytes
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = NO_OFFSET
        # A batch was given up with an unknown result.
        self.is_unresolved = False

    def restart_sequences(self, producer_id: i64, producer_epoch: i64, position: int) -> None:
        """Numbers the batches in flight from that position on from 0, for another epoch of the producer."""
        sequence: i64 = 0
        for batch in self.in_flight[position:]:
            batch.set_producer(producer_id, producer_epoch, sequence)
            sequence = (sequence + batch.record_count) & SEQUENCE_MASK
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.next_sequence = sequence
        self.last_acked_sequence = NO_SEQUENCE
        self.is_unresolved = False

    def number(self, batch: ProducerBatch) -> None:
        """Gives the batch the next sequence."""
        batch.set_producer(self.producer_id, self.producer_epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.record_count) & SEQUENCE_MASK

    def is_next_sequence(self, sequence: i64) -> bool:
        return sequence == (self.last_acked_sequence + 1) & SEQUENCE_MASK

    def put_back(self, batch: ProducerBatch) -> None:
        """Queues a batch to be sent again: before the unsent ones, in the order of the sequences."""
        waiting = self.batches
        if not batch.has_sequence or not waiting:
            waiting.appendleft(batch)
        else:
            order: Any = self.in_flight.index
            position: i64 = 0
            for other in waiting:
                if not other.has_sequence or order(other) > order(batch):
                    break
                position += 1
            waiting.insert(position, batch)
        self.waiting_bytes += batch.size_bytes
