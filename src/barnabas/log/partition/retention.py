"""Deleting the oldest segments of a log: those before its start, those that are too old, and those beyond its size."""

from __future__ import annotations

import logging

from barnabas.clock import Clock
from barnabas.config.log_config import LogConfig
from barnabas.log.file_system import StorageFailure
from barnabas.log.partition.guard import Guard
from barnabas.log.partition.local_log import LocalLog
from barnabas.log.partition.upkeep import SegmentUpkeep
from barnabas.log.partition.watermarks import Watermarks
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments

logger = logging.getLogger(__name__)


class Retention:
    """Deletes segments of one log.

    Threads: any thread calls, without the log's lock. The lock is taken in steps and is free in between.
    """

    __slots__ = ("_clock", "_guard", "_local", "_segments", "_watermarks")

    def __init__(
        self, clock: Clock, guard: Guard, local: LocalLog, watermarks: Watermarks, segments: SegmentUpkeep
    ) -> None:
        self._clock = clock
        self._guard = guard
        self._local = local
        self._watermarks = watermarks
        self._segments = segments

    def delete_old_segments(self) -> int:
        local = self._local
        try:
            if not self._expired_segments():
                return 0
        except StorageFailure as failure:
            self._guard.fail(failure)
            raise
        with self._guard:
            count = len(self._expired_segments())
            if count == len(local.segments):
                self._segments.roll()
            if count:
                self._watermarks.advance_log_start_offset(local.segments.base_offsets[count])
                local.detach_oldest(count)
        while self._remove_detached_segment():
            pass
        return count

    def _remove_detached_segment(self) -> bool:
        try:
            self._local.sync_directory()
        except StorageFailure as failure:
            self._guard.fail(failure)
            raise
        with self._guard:
            removed = self._local.remove_detached()
            if removed is None:
                return False
            logger.info("deleting segment %s", removed.path)
            self._segments.delete_snapshots([removed])
            return True

    def _expired_segments(self) -> list[Segment]:
        return expired_segments(
            self._local.segments,
            self._local.config,
            log_start_offset=self._watermarks.log_start_offset,
            log_end_offset=self._local.end.offset,
            high_watermark=self._watermarks.high_watermark,
            now_ms=self._clock.now_ms(),
        )


def expired_segments(
    segments: Segments,
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[Segment]:
    """The segments to delete, from the oldest on; never one with offsets at or above the high watermark.

    Segments before the start offset are deleted in any topic. Size and age count only for a topic whose cleanup policy
    is deletion, and whose settings the user has confirmed.
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
