"""Segments of a log come and go in order: the log rolls a new one, the cleaner replaces old ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from barnabas.log.file_system import WRITE, FileSystem, NoSuchFile
from barnabas.log.names import CLEANED_SUFFIX
from barnabas.log.partition.guard import Guard
from barnabas.log.partition.local_log import LocalLog
from barnabas.log.producers.state import ProducerState
from barnabas.log.segment.segment import Segment

logger = logging.getLogger(__name__)


class SegmentUpkeep:
    """Rolls and replaces the segments of one log, and updates the producer snapshots.

    Owns `is_gapless`: whether the log was never cleaned. Then recovery can detect that a sealed segment lost its end,
    and a roll leaves the sync of the old segment to the scheduler.

    Threads: the caller holds the log's lock. The scheduled work of a roll runs later, in any thread, without the lock.
    """

    __slots__ = ("_fs", "_guard", "_local", "_producers", "is_gapless")

    def __init__(
        self, fs: FileSystem, local: LocalLog, producers: ProducerState, guard: Guard, is_gapless: bool
    ) -> None:
        self._fs = fs
        self._local = local
        self._producers = producers
        self._guard = guard
        self.is_gapless = is_gapless

    def roll(self, base_offset: int = 0) -> Segment:
        """Begins a new segment at the end of the log, or at the base offset if that is higher."""
        local = self._local
        segment = local.roll(max(base_offset, local.end.offset), flushes_first=not self.is_gapless)
        producers = self._producers
        producers.map_end_offset = segment.base_offset
        snapshot = producers.take_snapshot(sync=False)
        self._guard.schedule("flush-log", partial(self._flush_rolled, snapshot))
        return segment

    def _flush_rolled(self, snapshot: str | None) -> None:
        if snapshot is not None:
            try:
                self._fs.open(snapshot, WRITE).sync()
            except NoSuchFile:
                logger.debug("%s is gone already", snapshot)
        self._local.flush()

    def replace(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Replaces segments by cleaned ones, whose files are `.cleaned`."""
        self.is_gapless = False
        # The new segments are on the disk. Earlier records must be too.
        self._local.flush()
        self.delete_snapshots(self._local.replace(new, old))

    def create_cleaned(self, base_offset: int) -> Segment:
        return self._local.create_segment(base_offset, CLEANED_SUFFIX)

    def delete_snapshots(self, segments: Sequence[Segment]) -> None:
        """Deletes the producer snapshots of segments that left the log, after the delay that files are given."""
        for segment in segments:
            path = self._producers.mark_snapshot_deleted(segment.base_offset)
            if path is not None:
                self._guard.schedule(
                    "delete-file",
                    partial(self._fs.remove, path, missing_ok=True),
                    self._local.config.file_delete_delay_ms,
                )
