"""Records out of messages of v0 and v1; layout.py shows their bytes.

A wrapper's messages are read with the offsets and timestamps that Kafka gives them: in v1 the wrapper's offset is
that of its last message and the inner ones are relative; the timestamp of a wrapper with LogAppendTime is that of all.
"""

from __future__ import annotations

from barnabas.errors import InvalidRecord
from barnabas.model import Offset
from barnabas.records.compression import decompress
from barnabas.records.header import BatchHeader, CorruptRecord, iterate_headers
from barnabas.records.layout import (
    INT32,
    LOG_OVERHEAD_BYTES,
    MAGIC_V0,
    MAGIC_V1,
    MESSAGE_HEADER_V0,
    MESSAGE_HEADER_V1,
    CompressionType,
    TimestampType,
)
from barnabas.records.record import Record
from barnabas.records.varint import INT64_MAX, INT64_MIN


def decode_message(
    data: bytes | bytearray | memoryview, position: int, header: BatchHeader, max_decompressed_bytes: int
) -> list[Record]:
    """The one record of a message, or those of a wrapper."""
    if not header.is_compressed:
        key, value = _key_and_value(data, position, header)
        return [Record(header.base_offset, header.max_timestamp, key, value)]
    payload = decompress_wrapper(data, position, header, max_decompressed_bytes)
    return decode_inner_messages(payload, iterate_headers(payload), header)


def decompress_wrapper(
    data: bytes | bytearray | memoryview, position: int, header: BatchHeader, max_decompressed_bytes: int
) -> bytes:
    """The messages inside a wrapper, one after the other."""
    compression = header.compression
    if compression is CompressionType.ZSTD:
        raise InvalidRecord(
            f"the wrapper of v{header.magic} at offset {header.base_offset} is compressed with zstd"
        )
    _, value = _key_and_value(data, position, header)
    if value is None:
        raise InvalidRecord(f"the wrapper of v{header.magic} at offset {header.base_offset} has no value")
    return decompress(value, compression, magic=header.magic, max_decompressed_bytes=max_decompressed_bytes)


def decode_inner_messages(payload: bytes, inner: list[BatchHeader], wrapper: BatchHeader) -> list[Record]:
    if not inner:
        raise InvalidRecord(f"the wrapper at offset {wrapper.base_offset} holds no messages")
    # Certain versions of librdkafka leave a wrapper's offset at 0 in what they produce.
    offset_shift = 0
    if wrapper.magic == MAGIC_V1 and wrapper.base_offset != 0:
        offset_shift = wrapper.base_offset - inner[-1].base_offset
        if offset_shift < 0:
            raise InvalidRecord(
                f"the wrapper at offset {wrapper.base_offset} ends in a message at relative offset"
                f" {inner[-1].base_offset}"
            )
    log_append_time = wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
    records: list[Record] = []
    position = 0
    for header in inner:
        if header.is_compressed or header.magic > MAGIC_V1:
            raise InvalidRecord(
                f"a message within the wrapper at offset {wrapper.base_offset} has magic {header.magic} and"
                f" attributes {header.attributes:#x}"
            )
        key, value = _key_and_value(payload, position, header)
        timestamp = header.max_timestamp
        if log_append_time and header.magic == MAGIC_V1:
            timestamp = wrapper.max_timestamp
        offset = Offset(header.base_offset + offset_shift)
        if not INT64_MIN <= offset <= INT64_MAX:
            raise InvalidRecord(
                f"the wrapper at offset {wrapper.base_offset} holds a message at offset {offset}"
            )
        records.append(Record(offset, timestamp, key, value))
        position += header.size_bytes
    return records


def _key_and_value(
    data: bytes | bytearray | memoryview, position: int, header: BatchHeader
) -> tuple[bytes | None, bytes | None]:
    end = position + header.size_bytes
    if end > len(data):
        raise CorruptRecord(
            f"the message of {header.size_bytes} bytes at offset {header.base_offset} is cut off after"
            f" {len(data) - position}"
        )
    start = position + (MESSAGE_HEADER_V0.size if header.magic == MAGIC_V0 else MESSAGE_HEADER_V1.size)
    key, start = _nullable_bytes(data, start, end, header)
    value, start = _nullable_bytes(data, start, end, header)
    return key, value


def _nullable_bytes(
    data: bytes | bytearray | memoryview, start: int, end: int, header: BatchHeader
) -> tuple[bytes | None, int]:
    if end - start < INT32.size:
        raise CorruptRecord(
            f"the message at offset {header.base_offset} ends within a length, after"
            f" {header.size_bytes - LOG_OVERHEAD_BYTES} bytes"
        )
    (length,) = INT32.unpack_from(data, start)
    start += INT32.size
    if length < 0:
        return None, start
    if length > end - start:
        raise CorruptRecord(
            f"a length of {length} in the message at offset {header.base_offset} exceeds its {end - start} bytes"
        )
    return bytes(data[start : start + length]), start + length
