"""Which of a log's oldest segments may go: those before its start, too many bytes, too old."""

from __future__ import annotations

from barnabas.config.log_config import LogConfig
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments


def expired_segments(
    segments: Segments,
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[Segment]:
    """The segments to delete, from the oldest on; never one that holds offsets at or behind the high watermark.

    Bytes before the start offset are of no use to any topic; by size and by time only a topic whose policy is
    deletion, and whose settings somebody has confirmed, loses records.
    """
    expired = 0
    sizes = [segment.size_bytes for segment in segments.all]
    end_offsets = [*segments.base_offsets[1:], log_end_offset]
    count = len(sizes)

    def may_go(index: int) -> bool:
        if high_watermark < end_offsets[index]:
            return False
        # An empty active segment is not worth replacing by another.
        return index < count - 1 or sizes[index] > 0

    while expired < count - 1 and end_offsets[expired] <= log_start_offset and may_go(expired):
        expired += 1
    if not config.delete or config.barnabas_deletion_hold:
        return segments.all[:expired]
    if config.retention_bytes >= 0:
        excess_bytes = sum(sizes[expired:]) - config.retention_bytes
        while expired < count and sizes[expired] <= excess_bytes and may_go(expired):
            excess_bytes -= sizes[expired]
            expired += 1
    if config.retention_ms >= 0:
        while (
            expired < count
            and may_go(expired)
            and now_ms - segments.all[expired].largest_timestamp > config.retention_ms
        ):
            expired += 1
    return segments.all[:expired]
