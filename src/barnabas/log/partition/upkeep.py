"""What becomes of a partition's log apart from appends: its marks move, and segments are rolled, flushed and removed.

The rules for this, of crashes and of threads, are those of partition_log.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from barnabas.clock import Clock
from barnabas.errors import OffsetOutOfRange
from barnabas.log.file_system import WRITE, FileSystem, NoSuchFile, StorageFailure
from barnabas.log.names import CLEANED_SUFFIX
from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.partition.guard import Guard
from barnabas.log.partition.local_log import LocalLog
from barnabas.log.partition.retention import expired_segments
from barnabas.log.partition.view import LogView
from barnabas.log.producers.replay import rebuild_producer_state
from barnabas.log.producers.state import ProducerState
from barnabas.log.segment.segment import Segment
from barnabas.model import NO_OFFSET, Offset, TopicPartition
from barnabas.records.layout import MAGIC_V2

logger = logging.getLogger(__name__)


class LogUpkeep(LogView):
    """The part of a partition log that adds no records."""

    __slots__ = ("_fs", "_gapless")

    def __init__(
        self,
        topic_partition: TopicPartition,
        clock: Clock,
        local: LocalLog,
        guard: Guard,
        epochs: EpochCache,
        producers: ProducerState,
        log_start_offset: int,
        topic_id: bytes | None,
        *,
        fs: FileSystem,
        gapless: bool,
    ) -> None:
        super().__init__(topic_partition, clock, local, guard, epochs, producers, log_start_offset, topic_id)
        self._fs = fs
        self._gapless = gapless

    def advance_high_watermark(self, candidate: int) -> bool:
        """Raises the high watermark, if the candidate is higher."""
        with self._guard:
            return self._raise_high_watermark(candidate)

    def _raise_high_watermark(self, candidate: int) -> bool:
        if candidate <= self._high_watermark:
            return False
        assert candidate <= self._local.end.offset, (candidate, self._local.end.offset)
        self._set_high_watermark(candidate)
        return True

    def update_high_watermark(self, offset: int) -> Offset:
        """Sets what a leader says, or a checkpoint, as far as it lies within the log."""
        with self._guard:
            offset = min(max(offset, self._log_start_offset), self._local.end.offset)
            if offset < self._high_watermark:
                logger.warning(
                    "the high watermark of %s goes back from %d to %d",
                    self.topic_partition,
                    self._high_watermark,
                    offset,
                )
            self._set_high_watermark(offset)
            return Offset(offset)

    def _set_high_watermark(self, offset: int) -> None:
        self._high_watermark = offset
        self._producers.acknowledge(offset)
        self._update_first_unstable_offset()

    def _update_first_unstable_offset(self) -> None:
        first = self._producers.first_unstable_offset()
        self._first_unstable_offset = max(first, self._log_start_offset) if first >= 0 else NO_OFFSET

    def advance_log_start_offset(self, offset: int) -> bool:
        """Lets go of the records before the offset, which may not be behind the high watermark."""
        with self._guard:
            if offset > self._high_watermark:
                raise OffsetOutOfRange(
                    f"the log of {self.topic_partition} cannot start at {offset}, which is behind its high watermark"
                    f" {self._high_watermark}"
                )
            if offset <= self._log_start_offset:
                return False
            self._log_start_offset = offset
            self._epochs.truncate_from_start(offset)
            self._producers.advance_log_start_offset(offset)
            self._update_first_unstable_offset()
            return True

    def delete_records(self, before_offset: int) -> Offset:
        """DeleteRecords: -1 stands for the high watermark. The new start offset of the log."""
        with self._guard:
            if before_offset == -1:
                before_offset = self._high_watermark
            if before_offset < 0:
                raise OffsetOutOfRange(f"there is no offset {before_offset} in {self.topic_partition}")
            self.advance_log_start_offset(before_offset)
            return Offset(self._log_start_offset)

    def delete_old_segments(self) -> int:
        """Deletes the segments that retention lets go of; how many.

        They leave the log together. Their files go one at a time, each surely gone before the next, or there might be
        a hole after a crash; the lock is free in between.
        """
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
                self.roll()
            if count:
                self.advance_log_start_offset(local.segments.base_offsets[count])
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
            self._delete_snapshots([removed])
            return True

    def _expired_segments(self) -> list[Segment]:
        return expired_segments(
            self._local.segments,
            self._local.config,
            log_start_offset=self._log_start_offset,
            log_end_offset=self._local.end.offset,
            high_watermark=self._high_watermark,
            now_ms=self._clock.now_ms(),
        )

    def roll(self, base_offset: int = 0) -> Segment:
        """Begins a new segment at the end of the log, or at the base offset if that is higher."""
        with self._guard:
            local = self._local
            segment = local.roll(max(base_offset, local.end.offset), flushes_first=not self._gapless)
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

    def flush(self, *, syncs_above: bool = True) -> None:
        """Returns once all that was appended before is on the disk; then the recovery point is behind it.

        Without `syncs_above` the directory above has been synced since the log was made.
        """
        self._guard.check()
        try:
            self._local.flush(syncs_above=syncs_above)
        except StorageFailure as failure:
            self._guard.fail(failure)
            raise

    def truncate_to(self, offset: int) -> bool:
        """Removes the batches that hold the offset or later ones; false if there are none. It is on the disk on return.

        The log goes on behind the last batch that is left, which in Kafka it does only when it is opened again: if the
        offset was within a batch there would be a hole. The recovery point may go back: whoever keeps it in a
        checkpoint writes it anew before anything is appended.
        """
        assert offset >= 0
        with self._guard:
            local = self._local
            if offset >= local.end.offset:
                # An epoch may have begun here for a leader that never got to write in it.
                self._epochs.truncate_from_end(local.end.offset)
                return False
            if local.segments.base_offsets[0] > offset:
                self.truncate_fully_and_start_at(offset)
                return True
            logger.info("truncating %s from %d to %d", self.topic_partition, local.end.offset, offset)
            self._delete_snapshots(local.truncate_to(offset))
            end_offset = local.end.offset
            self._epochs.truncate_from_end(end_offset)
            self._log_start_offset = min(self._log_start_offset, end_offset)
            self._rebuild_producers(end_offset)
            self._set_high_watermark(min(self._high_watermark, end_offset))
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Removes everything; the log goes on at the offset."""
        with self._guard:
            logger.info("truncating all of %s to start at %d", self.topic_partition, offset)
            self._local.truncate_fully_and_start_at(offset)
            self._epochs.clear()
            self._producers.truncate_fully_and_start_at(offset)
            self._log_start_offset = offset if log_start_offset is None else log_start_offset
            self._rebuild_producers(offset)
            self._set_high_watermark(offset)

    def _rebuild_producers(self, end_offset: int) -> None:
        rebuild_producer_state(
            self._producers,
            self._local.segments,
            log_start_offset=self._log_start_offset,
            end_offset=end_offset,
            now_ms=self._clock.now_ms(),
            has_never_seen_producers=self._local.config.message_magic < MAGIC_V2,
        )

    def _delete_snapshots(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            path = self._producers.mark_snapshot_deleted(segment.base_offset)
            if path is not None:
                self._guard.schedule(
                    "delete-file",
                    partial(self._fs.remove, path, missing_ok=True),
                    self._local.config.file_delete_delay_ms,
                )

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Puts cleaned segments (whose files are `.cleaned`) in the place of those that they were made of.

        A crash at any step leaves either the old ones or the new. Old ones that have been deleted meanwhile are not
        missed, but then the new ones must not be put in.
        """
        with self._guard:
            self._gapless = False
            # What is swapped in is on the disk; what stands before it must be too.
            self._local.flush()
            self._delete_snapshots(self._local.replace(new, old))

    def create_cleaned_segment(self, base_offset: int) -> Segment:
        """An empty segment for the cleaner to write to."""
        return self._local.create_segment(base_offset, CLEANED_SUFFIX)

    def remove_expired_producers(self) -> None:
        with self._guard:
            self._producers.remove_expired(self._clock.now_ms())
