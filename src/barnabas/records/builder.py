"""Batches out of records: of v2 with all that a batch can be, of v0 and v1 for readers that know no other."""

from __future__ import annotations

import zlib
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i64

from barnabas.errors import InvalidRecord
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
)
from barnabas.primitives.crc32c import crc32c
from barnabas.records.compression import compress
from barnabas.records.control import EndTxnMarker
from barnabas.records.header import BatchHeader
from barnabas.records.layout import (
    BATCH_HEADER_BYTES,
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    INT32,
    INT32_MAX,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    MESSAGE_HEADER_V0,
    MESSAGE_HEADER_V1,
    MESSAGE_OVERHEAD_V0_BYTES,
    MESSAGE_OVERHEAD_V1_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    CompressionType,
    ControlRecordType,
    TimestampType,
)
from barnabas.records.record import NO_HEADERS, Headers, Record
from barnabas.records.varint import INT64_MAX, INT64_MIN, varint_size, wrap_int64, write_varint

FIRST_OFFSET: Final = Offset(0)

_NULL_LENGTH: Final = INT32.pack(-1)


class BatchBuilder:
    """Collects records and writes them as one batch.

    In v0 and v1 that is a wrapper if they are compressed, else a message a record. With LogAppendTime all records get
    the `log_append_time`. A delete horizon stands where the base timestamp does, and records count from there.
    """

    __slots__ = (
        "_attributes",
        "_base_timestamp",
        "_body",
        "_level",
        "base_offset",
        "base_sequence",
        "compression",
        "last_offset",
        "log_append_time",
        "magic",
        "max_timestamp",
        "offset_of_max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "timestamp_type",
    )

    def __init__(
        self,
        *,
        magic: int = MAGIC_V2,
        compression: CompressionType = CompressionType.NONE,
        compression_level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        base_offset: Offset = FIRST_OFFSET,
        log_append_time: TimestampMs = NO_TIMESTAMP,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
        delete_horizon_ms: TimestampMs = NO_TIMESTAMP,
    ) -> None:
        assert MAGIC_V0 <= magic <= MAGIC_V2
        attributes = int(compression)
        if timestamp_type is TimestampType.LOG_APPEND_TIME and magic > MAGIC_V0:
            attributes |= TIMESTAMP_TYPE_BIT
        if is_transactional:
            attributes |= TRANSACTIONAL_BIT
        if is_control:
            attributes |= CONTROL_BIT
        if delete_horizon_ms != NO_TIMESTAMP:
            attributes |= DELETE_HORIZON_BIT
        if magic < MAGIC_V2:
            assert attributes & ~(COMPRESSION_MASK | TIMESTAMP_TYPE_BIT) == 0, (
                "v0 and v1 have no such attribute"
            )
            assert producer_id == NO_PRODUCER_ID, "v0 and v1 have no producers"
            assert compression is not CompressionType.ZSTD, "v0 and v1 have no zstd"
        self.magic = magic
        self.compression = compression
        self.timestamp_type = timestamp_type
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.partition_leader_epoch = partition_leader_epoch
        self.record_count = 0
        self.last_offset = NO_OFFSET
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = NO_OFFSET
        self._attributes = attributes
        self._level = compression_level
        self._base_timestamp = delete_horizon_ms
        self._body = BytesWriter()

    @property
    def size_bytes(self) -> int:
        """How large the batch would be if it were built now and not compressed."""
        if self.magic == MAGIC_V2:
            return len(self._body) + BATCH_HEADER_BYTES
        return len(self._body)

    def append(
        self,
        timestamp: TimestampMs,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = NO_HEADERS,
    ) -> None:
        """Adds a record at the next offset."""
        offset = self.base_offset if self.record_count == 0 else Offset(self.last_offset + 1)
        self.append_with_offset(offset, timestamp, key, value, headers)

    def append_with_offset(
        self,
        offset: Offset,
        timestamp: TimestampMs,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = NO_HEADERS,
    ) -> None:
        offset_delta = offset - self.base_offset
        if (offset <= self.last_offset and self.record_count > 0) or not 0 <= offset_delta <= INT32_MAX:
            # Not ours to assert: the offsets may come out of a batch that its producer numbered wrongly.
            raise InvalidRecord(
                f"offset {offset} cannot follow {self.last_offset} in a batch that begins at {self.base_offset}"
            )
        if self.magic == MAGIC_V2:
            if self.record_count == 0 and not self._attributes & DELETE_HORIZON_BIT:
                self._base_timestamp = timestamp
            timestamp_delta: i64 = timestamp
            timestamp_delta -= self._base_timestamp
            if timestamp_delta > INT64_MAX or timestamp_delta < INT64_MIN:
                timestamp_delta = wrap_int64(timestamp_delta)
            write_record(self._body, offset_delta, timestamp_delta, key, value, headers)
        else:
            assert not headers, "v0 and v1 have no headers"
            if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
                timestamp = self.log_append_time
            self._write_message(offset, timestamp, key, value)
        self.record_count += 1
        self.last_offset = offset
        if timestamp > self.max_timestamp and self.magic > MAGIC_V0:
            self.max_timestamp = timestamp
            self.offset_of_max_timestamp = offset

    def append_record(self, record: Record) -> None:
        self.append_with_offset(record.offset, record.timestamp, record.key, record.value, record.headers)

    def build(self, *, last_offset: Offset = NO_OFFSET) -> bytes:
        """The batch, empty bytes if there are no records; a `last_offset` beyond the last record's may be claimed."""
        if self.record_count == 0:
            return b""
        if last_offset != NO_OFFSET:
            assert last_offset >= self.last_offset
            self.last_offset = last_offset
        body = self._body.getvalue()
        if self.compression is not CompressionType.NONE:
            body = compress(body, self.compression, magic=self.magic, level=self._level)
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            self.max_timestamp = self.log_append_time
        if self.magic == MAGIC_V2:
            return with_batch_header(
                body,
                self.base_offset,
                self.partition_leader_epoch,
                self._attributes,
                self.last_offset - self.base_offset,
                self._base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.record_count,
            )
        if self.compression is CompressionType.NONE:
            return body
        return encode_message(
            self.magic, self.last_offset, self.max_timestamp, None, body, attributes=self._attributes
        )

    def shallow_offset_of_max_timestamp(self) -> Offset:
        """Where a time index says the largest timestamp is: at its message, or at the end of its batch."""
        if self.magic == MAGIC_V2 or self.compression is not CompressionType.NONE:
            return self.last_offset if self.max_timestamp != NO_TIMESTAMP else NO_OFFSET
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return self.base_offset
        return self.offset_of_max_timestamp

    def _write_message(
        self, offset: Offset, timestamp: TimestampMs, key: bytes | None, value: bytes | None
    ) -> None:
        compressed = self.compression is not CompressionType.NONE
        inner_offset = offset
        if compressed and self.magic == MAGIC_V1:
            inner_offset = Offset(offset - self.base_offset)
        self._body.write(
            encode_message(
                self.magic,
                inner_offset,
                timestamp,
                key,
                value,
                attributes=self._attributes & ~COMPRESSION_MASK,
            )
        )


def encode_message(
    magic: int,
    offset: Offset,
    timestamp: TimestampMs,
    key: bytes | None,
    value: bytes | None,
    *,
    attributes: int = 0,
) -> bytes:
    """One message of v0 or v1."""
    tail = (
        (_NULL_LENGTH if key is None else INT32.pack(len(key)) + key)
        + (_NULL_LENGTH if value is None else INT32.pack(len(value)))
        + (value or b"")
    )
    if magic == MAGIC_V0:
        length = len(tail) + MESSAGE_OVERHEAD_V0_BYTES - 8
        head = MESSAGE_HEADER_V0.pack(offset, length, 0, magic, attributes)
    else:
        length = len(tail) + MESSAGE_OVERHEAD_V1_BYTES - 8
        head = MESSAGE_HEADER_V1.pack(offset, length, 0, magic, attributes, timestamp)
    crc = zlib.crc32(tail, zlib.crc32(head[MAGIC_POSITION:]))
    return head[:LOG_OVERHEAD_BYTES] + crc.to_bytes(4, "big") + head[MAGIC_POSITION:] + tail


def build_empty_batch(header: BatchHeader) -> bytes:
    """The batch of v2 without its records: it keeps the offsets and the producer's last sequence, as a cleaner must."""
    return with_batch_header(
        b"",
        header.base_offset,
        header.partition_leader_epoch,
        header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
        header.last_offset_delta,
        NO_TIMESTAMP,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        0,
    )


def end_transaction_marker(
    *,
    control_type: ControlRecordType,
    timestamp: TimestampMs,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    coordinator_epoch: int,
    base_offset: Offset = FIRST_OFFSET,
    partition_leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch that ends a producer's transaction in a partition."""
    marker = EndTxnMarker(control_type=control_type, coordinator_epoch=coordinator_epoch)
    builder = BatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
    builder.append(timestamp, marker.key(), marker.value())
    return builder.build()


def with_batch_header(
    body: bytes,
    base_offset: Offset,
    partition_leader_epoch: LeaderEpoch,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: TimestampMs,
    max_timestamp: TimestampMs,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: int,
    record_count: int,
) -> bytes:
    """A batch of v2: the header with its checksum, and behind it records as they are, compressed or not."""
    # Written field by field, as `layout` has them: packed by a Struct they take three times as long.
    covered = BytesWriter()
    write_i16_be(covered, attributes)
    write_i32_be(covered, last_offset_delta)
    write_i64_be(covered, base_timestamp)
    write_i64_be(covered, max_timestamp)
    write_i64_be(covered, producer_id)
    write_i16_be(covered, producer_epoch)
    write_i32_be(covered, base_sequence)
    write_i32_be(covered, record_count)
    tail = covered.getvalue()
    crc = crc32c(body, crc32c(tail))
    head = BytesWriter()
    write_i64_be(head, base_offset)
    write_i32_be(head, len(body) + BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES)
    write_i32_be(head, partition_leader_epoch)
    head.append(MAGIC_V2)
    write_i32_be(head, crc - (1 << 32) if crc > INT32_MAX else crc)
    return b"".join((head.getvalue(), tail, body))


def write_record(
    body: BytesWriter,
    offset_delta: i64,
    timestamp_delta: i64,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> None:
    """Appends a record of v2."""
    size: i64 = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    key_size: i64 = -1
    value_size: i64 = -1
    header_bytes: bytes = b""
    if key is None:
        size += 1
    else:
        key_size = len(key)
        size += varint_size(key_size) + key_size
    if value is None:
        size += 1
    else:
        value_size = len(value)
        size += varint_size(value_size) + value_size
    if headers:
        header_bytes = _encode_headers(headers)
        size += len(header_bytes)
    else:
        size += 1
    write_varint(body, size)
    body.append(0)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    write_varint(body, key_size)
    if key is not None:
        body.write(key)
    write_varint(body, value_size)
    if value is not None:
        body.write(value)
    if headers:
        body.write(header_bytes)
    else:
        body.append(0)


def _encode_headers(headers: Headers) -> bytes:
    writer = BytesWriter()
    write_varint(writer, len(headers))
    for name, value in headers:
        encoded = name.encode()
        write_varint(writer, len(encoded))
        writer.write(encoded)
        if value is None:
            write_varint(writer, -1)
        else:
            write_varint(writer, len(value))
            writer.write(value)
    return writer.getvalue()
