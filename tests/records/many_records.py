"""Batches of a great many records, which a builder would take long to make."""

from __future__ import annotations

from barnabas.model import TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import compress
from barnabas.records.header import compute_crc, parse_header
from barnabas.records.layout import (
    BATCH_HEADER_BYTES,
    CRC_POSITION,
    INT32,
    LAST_OFFSET_DELTA_POSITION,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    RECORD_COUNT_POSITION,
    UINT32,
    CompressionType,
)

# Length, attributes, timestamp delta, offset delta, lengths of key and value, count of headers.
EMPTY_RECORD = bytes([12, 0, 0, 0, 0, 0, 0])


def many_records(count: int, compression: CompressionType) -> bytes:
    """Records with empty keys and values. All have the same offset, which makes a leader build them again."""
    builder = BatchBuilder(compression=compression)
    builder.append(TimestampMs(1_700_000_000_000), b"", b"")
    data = bytearray(builder.build()[:BATCH_HEADER_BYTES] + compress(EMPTY_RECORD * count, compression))
    INT32.pack_into(data, LENGTH_POSITION, len(data) - LOG_OVERHEAD_BYTES)
    INT32.pack_into(data, LAST_OFFSET_DELTA_POSITION, count - 1)
    INT32.pack_into(data, RECORD_COUNT_POSITION, count)
    UINT32.pack_into(data, CRC_POSITION, compute_crc(data, 0, parse_header(data)))
    return bytes(data)
