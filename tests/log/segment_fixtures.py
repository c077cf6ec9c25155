"""Batches and segments for tests of the log's files."""

from __future__ import annotations

from typing import Any

from barnabas.clock import ManualClock
from barnabas.log.file_system import FileSystem
from barnabas.log.segment.segment import Segment
from barnabas.model import LeaderEpoch, Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.records.header import iterate_headers
from barnabas.records.layout import MAGIC_V2

DIRECTORY = "/data/topic-0"


def make_batch(
    base_offset: int,
    record_count: int = 1,
    *,
    timestamp: int = 1_000,
    value_bytes: int = 10,
    magic: int = MAGIC_V2,
    leader_epoch: int = 0,
) -> bytes:
    """Records whose timestamps rise by one; a value says its offset."""
    builder = BatchBuilder(
        magic=magic, base_offset=Offset(base_offset), partition_leader_epoch=LeaderEpoch(leader_epoch)
    )
    for index in range(record_count):
        value = f"{base_offset + index}".encode().ljust(value_bytes, b".")
        builder.append(TimestampMs(timestamp + index), None, value)
    return builder.build()


def append(segment: Segment, *batches: bytes) -> None:
    data = b"".join(batches)
    segment.append(data, iterate_headers(data))


def create_segment(
    fs: FileSystem,
    base_offset: int = 0,
    *,
    directory: str = DIRECTORY,
    clock: ManualClock | None = None,
    index_interval_bytes: int = 0,
    max_index_bytes: int = 4_096,
    **options: Any,
) -> Segment:
    return Segment.create(
        fs,
        clock or ManualClock(),
        directory,
        base_offset,
        index_interval_bytes=index_interval_bytes,
        max_index_bytes=max_index_bytes,
        **options,
    )


def open_segment(
    fs: FileSystem,
    base_offset: int = 0,
    *,
    directory: str = DIRECTORY,
    clock: ManualClock | None = None,
    index_interval_bytes: int = 0,
    max_index_bytes: int = 4_096,
    **options: Any,
) -> Segment:
    return Segment(
        fs,
        clock or ManualClock(),
        directory,
        base_offset,
        index_interval_bytes=index_interval_bytes,
        max_index_bytes=max_index_bytes,
        **options,
    )
