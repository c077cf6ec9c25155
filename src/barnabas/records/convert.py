"""Batches in an older format, for a reader that knows no newer one.

Up-conversion happens where records are appended to a log of a newer format: see validate.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.errors import UnsupportedCompressionType
from barnabas.model import NO_TIMESTAMP, Offset
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.header import BatchHeader, iterate_headers
from barnabas.records.layout import INT32_MAX, MAGIC_V2, CompressionType, TimestampType
from barnabas.records.reader import decode_batch
from barnabas.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedRecords:
    data: bytes
    converted_count: int


def down_convert(
    data: bytes,
    *,
    to_magic: int,
    first_offset: Offset,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    max_bytes: int = INT32_MAX,
) -> ConvertedRecords:
    """All whole batches, those of a newer format converted to the requested one, until they have `max_bytes` or more.

    The conversion omits control batches and headers, which the old formats lack. Uncompressed records become one
    message each, and those below `first_offset` are omitted too: some readers rely on getting only the offsets that
    they asked for.
    """
    assert to_magic < MAGIC_V2
    parts: list[bytes] = []
    converted_count = 0
    position = 0
    size_bytes = 0
    for header in iterate_headers(data):
        if size_bytes >= max_bytes:
            break
        start = position
        position += header.size_bytes
        if header.is_control:
            continue
        if header.compression is CompressionType.ZSTD:
            raise UnsupportedCompressionType(
                f"the batch at offset {header.base_offset} is compressed with zstd, which v{to_magic} lacks"
            )
        if header.magic <= to_magic:
            parts.append(data[start:position])
            size_bytes += header.size_bytes
            continue
        records = decode_batch(data, start, header=header, max_decompressed_bytes=max_decompressed_bytes)
        if not header.is_compressed:
            records = [record for record in records if record.offset >= first_offset]
        if records:
            parts.append(_converted_batch(records, header, to_magic))
            size_bytes += len(parts[-1])
            converted_count += len(records)
    return ConvertedRecords(data=b"".join(parts), converted_count=converted_count)


def _converted_batch(records: list[Record], header: BatchHeader, to_magic: int) -> bytes:
    timestamp_type = header.timestamp_type
    builder = BatchBuilder(
        magic=to_magic,
        compression=header.compression,
        timestamp_type=timestamp_type,
        base_offset=records[0].offset,
        log_append_time=header.max_timestamp
        if timestamp_type is TimestampType.LOG_APPEND_TIME
        else NO_TIMESTAMP,
    )
    for record in records:
        builder.append_with_offset(record.offset, record.timestamp, record.key, record.value)
    return builder.build()
