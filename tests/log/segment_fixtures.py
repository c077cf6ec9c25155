"""Batches and segments for tests of the log's files."""

from __future__ import annotations

from typing import Any

from barnabas.clock import ManualClock
from barnabas.log.file_system import FileSystem
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.settings import SegmentSettings
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


def create_segment(fs: FileSystem, base_offset: int = 0, **options: Any) -> Segment:
    return Segment.create(fs, *_placed(base_offset, options), **options)


def open_segment(fs: FileSystem, base_offset: int = 0, **options: Any) -> Segment:
    return Segment(fs, *_placed(base_offset, options), **options)


def _placed(base_offset: int, options: dict[str, Any]) -> tuple[ManualClock, str, int, SegmentSettings]:
    """Takes the positional arguments of a segment out of the options."""
    return (
        options.pop("clock", None) or ManualClock(),
        options.pop("directory", DIRECTORY),
        base_offset,
        SegmentSettings(options.pop("index_interval_bytes", 0), options.pop("max_index_bytes", 4_096)),
    )
