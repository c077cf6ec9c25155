"""A search for one record of a batch."""

from __future__ import annotations

from barnabas.model import Offset, TimestampMs
from barnabas.records.compression import MAX_DECOMPRESSED_BYTES
from barnabas.records.reader import decode_batch


def find_timestamp(
    data: bytes,
    timestamp: int,
    start_offset: int,
    *,
    is_exact: bool,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> tuple[TimestampMs, Offset] | None:
    """The first record from the offset on that is not before the time, or exactly at it, in one batch."""
    for record in decode_batch(data, max_decompressed_bytes=max_decompressed_bytes):
        is_there = record.timestamp == timestamp if is_exact else record.timestamp >= timestamp
        if is_there and record.offset >= start_offset:
            return record.timestamp, record.offset
    return None
