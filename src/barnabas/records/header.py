"""The header of a batch: parsed once, where the bytes arrive, and passed along from there.

A header contains all that a broker needs to know of an entry without its records; layout.py shows the position of each
field. Messages of v0 and v1 get a header too, with the fields that they lack at their defaults.
"""

from __future__ import annotations

import zlib
from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from barnabas.errors import CorruptMessage, UnsupportedCompressionType
from barnabas.model import (
    NO_LEADER_EPOCH,
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
from barnabas.records.layout import (
    ATTRIBUTES_POSITION,
    BASE_SEQUENCE_POSITION,
    BASE_TIMESTAMP_POSITION,
    BATCH_HEADER_BYTES,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER_UP_TO_MAGIC_BYTES,
    INT32,
    INT32_MAX,
    LAST_OFFSET_DELTA_POSITION,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V0,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TIMESTAMP_POSITION,
    MESSAGE_HEADER_V0,
    MESSAGE_HEADER_V1,
    MESSAGE_OVERHEAD_V0_BYTES,
    MESSAGE_OVERHEAD_V1_BYTES,
    PRODUCER_EPOCH_POSITION,
    PRODUCER_ID_POSITION,
    RECORD_COUNT_POSITION,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    UINT32_MAX,
    CompressionType,
    TimestampType,
)

UNKNOWN_COUNT: Final = -1
# Read-only data is copied up to this size.
COPIED_BYTES_MAX: Final = 8 * 1024

_COMPRESSION_TYPES: Final = tuple(CompressionType)


class CorruptRecord(CorruptMessage):
    """Bytes of a batch that cannot be what their writer meant."""


class BatchHeader:
    """The header of one entry.

    For v0 and v1 both base_offset and last_offset are the offset field: the first offset of a wrapper is only in its
    compressed value. Its record_count is then UNKNOWN_COUNT.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    def __init__(
        self,
        base_offset: Offset,
        size_bytes: int,
        partition_leader_epoch: LeaderEpoch,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: TimestampMs,
        max_timestamp: TimestampMs,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences begin again at 0 after the largest int32."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX

    @property
    def compression(self) -> CompressionType:
        """Raises UnsupportedCompressionType for a number that no release of Kafka gives a meaning."""
        number = self.attributes & COMPRESSION_MASK
        if number >= len(_COMPRESSION_TYPES):
            raise UnsupportedCompressionType(
                f"compression type {number} of the batch at offset {self.base_offset} is unknown"
            )
        return _COMPRESSION_TYPES[number]

    @property
    def is_compressed(self) -> bool:
        return self.attributes & COMPRESSION_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == MAGIC_V0:
            return TimestampType.NO_TIMESTAMP_TYPE
        if self.attributes & TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.magic >= MAGIC_V2 and self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.magic >= MAGIC_V2 and self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether base_timestamp is the time after which the batch's tombstones and markers may be deleted."""
        return self.magic >= MAGIC_V2 and self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    def __repr__(self) -> str:
        return (
            f"BatchHeader(offsets {self.base_offset} to {self.last_offset}, {self.size_bytes} bytes, magic"
            f" {self.magic}, attributes {self.attributes:#x}, producer {self.producer_id} epoch"
            f" {self.producer_epoch} sequence {self.base_sequence}, {self.record_count} records)"
        )


def entry_size(data: bytes | bytearray | memoryview, position: int = 0) -> int:
    """The size in bytes of the entry that begins at the position: 12 bytes are enough to know."""
    if position + LOG_OVERHEAD_BYTES > len(data):
        raise CorruptRecord(f"the entry at position {position} ends within its offset and length")
    (length,) = INT32.unpack_from(data, position + LENGTH_POSITION)
    if length < MESSAGE_OVERHEAD_V0_BYTES:
        raise CorruptRecord(
            f"length {length} of the entry at position {position} is below that of any record"
        )
    return int(length) + LOG_OVERHEAD_BYTES


def parse_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header of the entry at the position.

    Only the header's own bytes need be there: HEADER_PROBE_BYTES of them, or what the entry has.
    """
    available = len(data) - position
    if available < HEADER_UP_TO_MAGIC_BYTES:
        raise CorruptRecord(f"the header at position {position} ends before its magic")
    magic = data[position + MAGIC_POSITION]
    if magic == MAGIC_V2:
        if available < BATCH_HEADER_BYTES:
            raise CorruptRecord(f"the batch header at position {position} has only {available} bytes")
        end = position + BATCH_HEADER_BYTES
        head = data[position:end] if isinstance(data, bytes) else bytes(data[position:end])
        size_bytes = read_i32_be(head, LENGTH_POSITION) + LOG_OVERHEAD_BYTES
        if size_bytes < BATCH_HEADER_BYTES:
            raise CorruptRecord(
                f"size {size_bytes} of the batch at position {position} is below that of its header"
            )
        return BatchHeader(
            Offset(read_i64_be(head, 0)),
            size_bytes,
            LeaderEpoch(read_i32_be(head, LEADER_EPOCH_POSITION)),
            MAGIC_V2,
            i64(read_i32_be(head, CRC_POSITION)) & UINT32_MAX,
            read_i16_be(head, ATTRIBUTES_POSITION),
            read_i32_be(head, LAST_OFFSET_DELTA_POSITION),
            TimestampMs(read_i64_be(head, BASE_TIMESTAMP_POSITION)),
            TimestampMs(read_i64_be(head, MAX_TIMESTAMP_POSITION)),
            ProducerId(read_i64_be(head, PRODUCER_ID_POSITION)),
            ProducerEpoch(read_i16_be(head, PRODUCER_EPOCH_POSITION)),
            read_i32_be(head, BASE_SEQUENCE_POSITION),
            read_i32_be(head, RECORD_COUNT_POSITION),
        )
    if magic > MAGIC_V2:
        raise CorruptRecord(f"magic {magic} of the entry at position {position} is unknown")
    return _parse_message_header(data, position, magic)


def _parse_message_header(data: bytes | bytearray | memoryview, position: int, magic: int) -> BatchHeader:
    timestamp = NO_TIMESTAMP
    available = len(data) - position
    if magic == MAGIC_V0:
        overhead_bytes = MESSAGE_OVERHEAD_V0_BYTES
        layout = MESSAGE_HEADER_V0
    else:
        overhead_bytes = MESSAGE_OVERHEAD_V1_BYTES
        layout = MESSAGE_HEADER_V1
    if available < layout.size:
        raise CorruptRecord(f"the message header at position {position} has only {available} bytes")
    fields = layout.unpack_from(data, position)
    length: int = fields[1]
    attributes: int = fields[4]
    if length < overhead_bytes:
        raise CorruptRecord(
            f"length {length} of the message at position {position} is below that of any in v{magic}"
        )
    if magic == MAGIC_V1:
        timestamp = fields[5]
    return BatchHeader(
        fields[0],
        length + LOG_OVERHEAD_BYTES,
        NO_LEADER_EPOCH,
        magic,
        fields[2],
        attributes,
        0,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        UNKNOWN_COUNT if attributes & COMPRESSION_MASK else 1,
    )


def compute_crc(data: bytes | bytearray | memoryview, position: int, header: BatchHeader) -> int:
    """The checksum that the entry's bytes ought to carry; the whole entry must be there."""
    end = position + header.size_bytes
    if isinstance(data, bytes) and header.magic == MAGIC_V2 and header.size_bytes <= COPIED_BYTES_MAX:
        # A copy of a small batch costs less than a view of it.
        return crc32c(data[position + ATTRIBUTES_POSITION : end])
    view = data if isinstance(data, memoryview) else memoryview(data)
    if header.magic == MAGIC_V2:
        return crc32c(view[position + ATTRIBUTES_POSITION : end])
    return zlib.crc32(view[position + MAGIC_POSITION : end])


def verify_crc(data: bytes | bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Raises CorruptRecord unless the whole entry is present and its bytes match its checksum."""
    if position + header.size_bytes > len(data):
        raise CorruptRecord(
            f"the entry at position {position}, offset {header.base_offset}, has {header.size_bytes} bytes of which"
            f" {len(data) - position} are there"
        )
    computed = compute_crc(data, position, header)
    if computed != header.crc:
        raise CorruptRecord(
            f"the entry at position {position}, offset {header.base_offset}, is corrupt: its checksum is"
            f" {header.crc}, that of its bytes {computed}"
        )


def iterate_headers(data: bytes | bytearray | memoryview) -> list[BatchHeader]:
    """The headers of all whole entries, from the first byte on.

    An incomplete last entry is omitted, because fetch responses end in one. Bytes that cannot be an entry raise.
    """
    headers: list[BatchHeader] = []
    position = 0
    end = len(data)
    while end - position >= HEADER_UP_TO_MAGIC_BYTES:
        size_bytes = entry_size(data, position)
        if size_bytes > end - position:
            # A magic that no one knows is no sign of a cut, but of bytes that are not records at all.
            if data[position + MAGIC_POSITION] > MAGIC_V2:
                parse_header(data, position)
            break
        headers.append(parse_header(data, position))
        position += size_bytes
    return headers
