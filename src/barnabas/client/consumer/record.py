"""A record as a consumer returns it, created in one compiled loop per batch.

All records of a batch share one object for topic, partition, timestamp type and leader epoch. Offsets and timestamps
are machine integers until they are read. Keys and values are copies, so a record keeps no other memory alive.
"""

from __future__ import annotations

from typing import Any

from librt.strings import BytesWriter, write_i32_le
from mypy_extensions import i32, i64, mypyc_attr

from barnabas.records.header import BatchHeader
from barnabas.records.layout import INT32_MAX, MAGIC_V2, TIMESTAMP_TYPE_BIT, TimestampType
from barnabas.records.reader import decode_batch, decode_headers, open_records
from barnabas.records.record import NO_HEADERS, Headers, MalformedRecord, contradiction
from barnabas.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong, wrap_int64


@mypyc_attr(acyclic=True)
class ConsumerRecord:
    """A record with its place: `key` and `value` are bytes or None, or what the deserializers make of them."""

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp_ms",
        "timestamp_type",
        "topic",
        "value",
    )
    topic: str
    partition: i32
    offset: i64
    timestamp_ms: i64
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: Headers
    leader_epoch: i32

    def __init__(
        self,
        topic: str,
        partition: i32,
        offset: i64,
        timestamp_ms: i64 = -1,
        timestamp_type: TimestampType = TimestampType.NO_TIMESTAMP_TYPE,
        key: Any = None,
        value: Any = None,
        headers: Headers = (),
        leader_epoch: i32 = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.partition == other.partition
            and self.topic == other.topic
            and self.timestamp_ms == other.timestamp_ms
            and self.timestamp_type == other.timestamp_type
            and bool(self.key == other.key)
            and bool(self.value == other.value)
            and self.headers == other.headers
            and self.leader_epoch == other.leader_epoch
        )

    def __hash__(self) -> int:
        return hash((self.topic, int(self.partition), int(self.offset)))

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle and copy, as in Record."""
        return ConsumerRecord, (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp_ms,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
        )

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset},"
            f" timestamp_ms={self.timestamp_ms}, timestamp_type={self.timestamp_type.label}, key={self.key!r},"
            f" value={self.value!r}, headers={self.headers!r}, leader_epoch={self.leader_epoch})"
        )


def decode_consumer_records(
    data: bytes,
    position: int,
    header: BatchHeader,
    topic: str,
    partition: int,
    start_offset: int,
    max_decompressed_bytes: int,
) -> list[ConsumerRecord]:
    """The records at `start_offset` or later of the entry at the position, of whichever format.

    Raises InvalidRecord (or UnsupportedCompressionType, or CorruptMessage) if the bytes are not records.
    """
    if header.magic < MAGIC_V2:
        timestamp_type = header.timestamp_type
        return [
            ConsumerRecord(
                topic, partition, each.offset, each.timestamp, timestamp_type, each.key, each.value
            )
            for each in decode_batch(
                data, position, header=header, max_decompressed_bytes=max_decompressed_bytes
            )
            if each.offset >= start_offset
        ]
    payload, start, end = open_records(data, position, header, max_decompressed_bytes)
    return _decode(payload, start, end, header, topic, partition, start_offset)


def _decode(
    data: bytes,
    start: i64,
    end: i64,
    header: BatchHeader,
    topic: str,
    partition: i32,
    start_offset: i64,
) -> list[ConsumerRecord]:
    """Decodes the records of a v2 batch in one loop: a call for each field would cost more than the field."""
    records: list[ConsumerRecord] = []
    count: i64 = header.record_count
    base_offset: i64 = header.base_offset
    if count < 0 or base_offset < 0 or base_offset > INT64_MAX - INT32_MAX:
        raise MalformedRecord(f"a batch at offset {base_offset} claims to hold {count} records")
    base_timestamp: i64 = header.base_timestamp
    log_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
    max_timestamp: i64 = header.max_timestamp
    timestamp_type = header.timestamp_type
    leader_epoch: i32 = header.partition_leader_epoch
    position: i64 = start
    record_end: i64
    length: i64
    timestamp: i64
    offset_delta: i64
    key: bytes | None
    value: bytes | None
    headers: Headers
    try:
        while count > 0:
            count -= 1
            length, position = read_varint(data, position)
            record_end = position + length
            if length < 0 or record_end > end:
                raise contradiction("length", length, header.record_count - count - 1, header)
            # Nothing has a meaning yet among a record's own attributes.
            position += 1

            timestamp, position = read_varlong(data, position)
            offset_delta, position = read_varint(data, position)
            if base_offset + offset_delta < start_offset:
                position = record_end
                continue
            timestamp += base_timestamp
            if log_append_time:
                timestamp = max_timestamp
            elif timestamp > INT64_MAX or timestamp < INT64_MIN:
                timestamp = wrap_int64(timestamp)

            length, position = read_varint(data, position)
            if length < 0:
                key = None
            elif position + length > record_end:
                raise contradiction("key length", length, header.record_count - count - 1, header)
            else:
                key = data[position : position + length]
                position += length

            length, position = read_varint(data, position)
            if length < 0:
                value = None
            elif position + length > record_end:
                raise contradiction("value length", length, header.record_count - count - 1, header)
            else:
                value = data[position : position + length]
                position += length

            if data[position] == 0:
                position += 1
                headers = NO_HEADERS
            else:
                headers, position = decode_headers(data, position, record_end)
            if position != record_end:
                raise contradiction("length", record_end - position, header.record_count - count - 1, header)
            records.append(
                ConsumerRecord(
                    topic,
                    partition,
                    base_offset + offset_delta,
                    timestamp,
                    timestamp_type,
                    key,
                    value,
                    headers,
                    leader_epoch,
                )
            )
    except IndexError:
        raise MalformedRecord(
            f"the records of the batch at offset {base_offset} end within record"
            f" {header.record_count - count - 1} of {header.record_count}"
        ) from None
    if position != end:
        raise MalformedRecord(
            f"{end - position} bytes follow the {header.record_count} records of the batch at offset"
            f" {base_offset}"
        )
    return records


def repeated_offsets(runs: list[tuple[int, int]]) -> bytes:
    """Arrow's offsets of a column whose values have the same length over runs of records: (length, count) each."""
    offsets = BytesWriter()
    write_i32_le(offsets, 0)
    end: i32 = 0
    for length, count in runs:
        step: i32 = length
        left: i64 = count
        while left > 0:
            left -= 1
            end += step
            write_i32_le(offsets, end)
    return offsets.getvalue()
