"""The segments of a partition's log on disk: appending, rolling, flushing, truncating and removing them.

Thousands of logs may be created at once, and a new log has nothing to lose: its directory, its epochs and its topic id
are synced together with the first of its records.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

from barnabas.config.log_config import LogConfig
from barnabas.log.file_system import WRITE, Data, FileSystem, NoSuchFile
from barnabas.log.names import DELETED_SUFFIX, PARTITION_METADATA, SIDE_FILES
from barnabas.log.partition.environment import OnFlush
from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.partition.loader import LoadedLog
from barnabas.log.partition.read import OffsetBound, locate
from barnabas.log.partition.segment_digests import digests_of
from barnabas.log.scheduler import Scheduler
from barnabas.log.segment.factory import SegmentFactory
from barnabas.log.segment.replacement import swap_in
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.side_files import NOT_LISTED, SideFiles, format_entries, write_side_files
from barnabas.primitives.crc32c import crc32c
from barnabas.records.header import BatchHeader
from barnabas.records.layout import MAGIC_V2

FLUSH_MESSAGES_MAX: Final = 1 << 60

logger = logging.getLogger(__name__)


class LocalLog:
    """Owns the segments of one log, its end, and its recovery point: the offset up to which records are on the disk.

    Invariant: recovery point ≤ end offset. The end offset increases only with an append and decreases only with a
    truncation.

    Threads: the caller of a method that changes something holds the log's lock, except for `flush`, which any thread
    calls at any time. `_flush_lock` excludes a flush during changes that it must not see (truncation, renaming,
    closing). Any thread may read `segments` and `end`, both of which are replaced as a whole.
    """

    __slots__ = (
        "_bounds",
        "_clock",
        "_directory_changes",
        "_directory_changes_synced",
        "_epochs",
        "_factory",
        "_flush_lock",
        "_fs",
        "_leaving",
        "_listed_checksum",
        "_listed_segments",
        "_max_segment_ms",
        "_on_flush",
        "_scheduler",
        "_seals_begun",
        "_seals_done",
        "config",
        "directory",
        "end",
        "flush_messages",
        "is_flushed",
        "last_flush_ms",
        "recovery_point",
        "segment_bytes",
        "segments",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        loaded: LoadedLog,
        factory: SegmentFactory,
        scheduler: Scheduler,
        epochs: EpochCache,
        on_flush: OnFlush | None = None,
    ) -> None:
        self.directory = directory
        self.segments: Segments = loaded.segments
        self.recovery_point: int = loaded.recovery_point
        self.last_flush_ms: int = factory.clock.now_ms()
        self._factory = factory
        self._fs: FileSystem = factory.fs
        self._clock = factory.clock
        self._scheduler = scheduler
        self._on_flush = on_flush
        self._epochs = epochs
        self.is_flushed = loaded.is_flushed
        """Whether anything of the log was ever flushed. If not, the first flush also syncs the file of epochs."""
        self._directory_changes = int(loaded.is_changed)
        self._directory_changes_synced = 0
        self._flush_lock = threading.Lock()
        self._seals_begun = 0
        self._seals_done = 0
        self._bounds: list[OffsetBound] = []
        # No part of the log any more, but of its directory.
        self._leaving: deque[Segment] = deque()
        # The list of side files describes these; segments that were sealed since then are not in it.
        is_listed = loaded.listed_checksum != NOT_LISTED
        self._listed_segments: Segments | None = loaded.segments if is_listed else None
        self._listed_checksum = loaded.listed_checksum
        active = self.segments.active
        self.end = OffsetBound(loaded.log_end_offset, active.base_offset, active.size_bytes)
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Settings of indexes hold from the next segment on."""
        self.config = config
        self.segment_bytes = config.segment_bytes
        # Larger numbers are slow to compare with, and no log has as many records.
        self.flush_messages = min(config.flush_messages, FLUSH_MESSAGES_MAX)
        self._max_segment_ms = config.max_segment_ms

    @property
    def unflushed_count(self) -> int:
        return self.end.offset - self.recovery_point

    def must_roll(self, size_bytes: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        segment = self.segments.active
        segment_bytes = segment.size_bytes
        return (
            segment_bytes + size_bytes > self.segment_bytes
            or (
                segment_bytes > 0
                and segment.time_waited_for_roll_ms(now_ms, max_timestamp)
                > self._max_segment_ms - segment.roll_jitter_ms
            )
            or segment.index_is_full
            or not segment.can_append_offset(last_offset)
        )

    def roll(self, base_offset: int, *, flushes_first: bool) -> Segment:
        """Seals the active segment and begins a new one."""
        active = self.segments.active
        assert base_offset >= active.base_offset, (base_offset, active)
        if base_offset == active.base_offset:
            # An index that was created too small is full before anything is in the segment.
            assert active.size_bytes == 0, active
            segment = self._factory.create(self.directory, base_offset, self.config)
            self.segments = self.segments.replacing([active], [segment])
            active.release()
        else:
            self._seals_begun += 1
            active.become_inactive()
            self._seals_done += 1
            # A segment before the recovery point is not looked at after a crash: its trimmed indexes must be there.
            if flushes_first or self.recovery_point >= self.end.offset:
                self.flush()
            # Recovery can detect that a segment has lost its end, but not that there was one.
            self.sync_directory()
            segment = self._factory.create(self.directory, base_offset, self.config)
            self.segments = self.segments.adding(segment)
        self._directory_changes += 1
        self._set_end(self.end.offset)
        logger.debug("rolled %s", segment.path)
        return segment

    def append(self, data: Data, headers: Sequence[BatchHeader], head: bytes) -> Segment:
        segment = self.segments.active
        segment.append(data, headers, head)
        self.end = OffsetBound(headers[-1].next_offset, segment.base_offset, segment.size_bytes)
        return segment

    def flush(self, *, syncs_above: bool = True) -> None:
        """Returns once all that was appended before is on the disk, `syncs_above` as for a partition's log."""
        with self._flush_lock:
            if not self.is_flushed:
                if self.end.offset == 0:
                    return
                self._sync_new()
                if syncs_above:
                    self._fs.sync_dir(os.path.dirname(self.directory))
                self.is_flushed = True
            started_ns = self._clock.monotonic_ns()
            seals = self._seals_begun
            is_sealing = seals != self._seals_done
            segments = self.segments
            flushed_offset = self.end.offset
            for segment in segments.holding(self.recovery_point, flushed_offset + 1):
                segment.flush()
            self.sync_directory()
            self._list_sealed(segments)
            if is_sealing or seals != self._seals_begun:
                # The last segment was sealed in the meantime: its indexes may have been trimmed after they were synced.
                flushed_offset = segments.active.base_offset
            self.recovery_point = max(self.recovery_point, flushed_offset)
            self.last_flush_ms = self._clock.now_ms()
            if self._on_flush is not None:
                self._on_flush(self._clock.monotonic_ns() - started_ns)

    def _list_sealed(self, segments: Segments) -> None:
        """Writes the list of side files with the indexes of all sealed segments; a crash does not rebuild these."""
        if segments is not self._listed_segments and len(segments) > 1:
            self._listed_segments = segments
            self._listed_checksum = NOT_LISTED
            write_side_files(self._fs, self._list_path, self._listed(segments.all[:-1], {}), syncs=False)

    @property
    def _list_path(self) -> str:
        return f"{self.directory}/{SIDE_FILES}"

    def _listed(self, segments: Sequence[Segment], others: SideFiles) -> bytes:
        files: SideFiles = {}
        for segment in segments:
            files.update(digests_of(segment))
        files.update(others)
        return format_entries(files, self._epochs.copied())

    def _sync_new(self) -> None:
        self._epochs.sync()
        with contextlib.suppress(NoSuchFile):
            self._fs.open(f"{self.directory}/{PARTITION_METADATA}", WRITE).sync()
        self._directory_changes += 1

    def sync_directory(self) -> None:
        """Returns once all names that have been made or changed are on the disk."""
        changes = self._directory_changes
        if changes > self._directory_changes_synced:
            self._fs.sync_dir(self.directory)
            self._directory_changes_synced = changes

    def note_new_file(self) -> None:
        """Makes the next flush sync the directory entry of a newly created file."""
        self._directory_changes += 1

    def bound_of(self, offset: int) -> OffsetBound:
        """The position of an offset, for a reader that must not read beyond it. The last two results are cached."""
        end = self.end
        if offset >= end.offset:
            return end
        for bound in self._bounds:
            if bound.offset == offset:
                return bound
        bound = locate(self.segments, offset, end)
        self._bounds = [bound, *self._bounds[:1]]
        return bound

    def truncate_to(self, offset: int, *, may_end_in_gap: bool) -> list[Segment]:
        """Removes the batches that hold the offset or later ones, for good; the segments that went.

        The log then ends where its last batch does. If the offset is in a gap behind that batch, and `may_end_in_gap`,
        the log ends at the offset.
        """
        with self._flush_lock:
            self._forget_bounds()
            removed = [segment for segment in self.segments.all if segment.base_offset > offset]
            self.segments = self.segments.without(removed)
            self._mark_from_end(removed)
            self._delete_later(removed)
            active = self.segments.active
            ends_in_gap = may_end_in_gap and not _may_be_within_batch(active, offset)
            active.truncate_to(offset)
            active.flush()
            self._directory_changes += 1
            self._set_end(offset if ends_in_gap else active.read_next_offset())
        return removed

    def truncate_fully_and_start_at(self, offset: int) -> list[Segment]:
        with self._flush_lock:
            self._forget_bounds()
            # There is an active segment at any time: readers continue in the old ones until the new one exists.
            removed = [*self._leaving, *self.segments.all]
            self._leaving.clear()
            self._mark_from_end(removed)
            segment = self._factory.create(self.directory, offset, self.config)
            self.segments = Segments([segment])
            segment.flush()
            self._fs.sync_dir(self.directory)
            # Only now: a directory without any segment, marked or not, would look like a log that was lost.
            self._delete_later(removed)
            self._set_end(offset)
        return removed

    @property
    def first_offset_on_disk(self) -> int:
        """The start of a log that is opened after a crash, unless a checkpoint has another."""
        # In this order: another thread may be detaching segments, or removing them.
        first = self.segments.all[0]
        leaving = list(self._leaving)
        return (leaving or [first])[0].base_offset

    def detach_oldest(self, count: int) -> None:
        """Takes the first segments out of the log; `remove_detached` takes them out of the directory."""
        self._forget_bounds()
        segments = self.segments
        self._leaving.extend(segments.all[:count])
        self.segments = Segments(segments.all[count:])

    def remove_detached(self) -> Segment | None:
        """The next of the detached segments is none of the directory's; its files go later, when readers are done.

        The directory must have been synced since the last one went: after a crash there must be no hole between them.
        """
        if not self._leaving:
            return None
        oldest = self._leaving[0]
        oldest.change_state(DELETED_SUFFIX)
        self._leaving.popleft()
        self._directory_changes += 1
        self._delete_later([oldest])
        return oldest

    def replace(self, new: Sequence[Segment], old: Sequence[Segment]) -> list[Segment]:
        """Replaces the cleaned segments' sources by them; returns the old ones without a namesake."""
        present = {id(segment) for segment in self.segments.all}
        new = sorted(new, key=_base_offset)
        old = sorted((segment for segment in old if id(segment) in present), key=_base_offset)
        replaced = self.segments.replacing(old, new)
        swap_in(self._fs, self.directory, new, old, partial(self._use, replaced))
        with self._flush_lock:
            self._list_sealed(self.segments)
        self._delete_later(old)
        names = {segment.base_offset for segment in new}
        return [segment for segment in old if segment.base_offset not in names]

    def create_segment(self, base_offset: int, state: str) -> Segment:
        """A segment that is not part of the log."""
        return self._factory.create(self.directory, base_offset, self.config, state)

    def rename_dir(self, name: str, *, syncs: bool = True) -> None:
        parent = os.path.dirname(self.directory)
        directory = os.path.join(parent, name)
        if directory == self.directory:
            return
        with self._flush_lock:
            self._fs.rename(self.directory, directory)
            if syncs:
                self._fs.sync_dir(parent)
            self.directory = directory
            for segment in [*self._leaving, *self.segments.all]:
                segment.relocate(directory)

    def close(self, other_side_files: SideFiles) -> None:
        with self._flush_lock:
            has_something_to_lose = self.is_flushed or self.end.offset > 0
            for segment in self._leaving:
                segment.release()
            for segment in self.segments.all:
                segment.close(syncs=has_something_to_lose)
            listed = self._listed(self.segments.all, other_side_files)
            if crc32c(listed) != self._listed_checksum:
                write_side_files(self._fs, self._list_path, listed, syncs=has_something_to_lose)

    def release(self) -> None:
        for segment in [*self._leaving, *self.segments.all]:
            segment.release()

    def delete(self) -> None:
        with self._flush_lock:
            self.release()
            self._fs.remove_tree(self.directory)

    def _mark_from_end(self, segments: list[Segment]) -> None:
        # The last one first, each for good before the next: the log must not have a hole after a crash.
        for segment in reversed(segments):
            segment.change_state(DELETED_SUFFIX)
            self._fs.sync_dir(self.directory)

    def _delete_later(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._scheduler.schedule("delete-file", segment.delete, self.config.file_delete_delay_ms)

    def _forget_bounds(self) -> None:
        self._bounds = []

    def _use(self, segments: Segments) -> None:
        self._forget_bounds()
        self.segments = segments

    def _set_end(self, offset: int) -> None:
        active = self.segments.active
        self.end = OffsetBound(offset, active.base_offset, active.size_bytes)
        self.recovery_point = min(self.recovery_point, offset)


def _may_be_within_batch(segment: Segment, offset: int) -> bool:
    """Whether a batch starts before the offset and ends at it or after it.

    The headers of old formats do not show this.
    """
    found = segment.locate(offset)
    if found is None:
        return False
    _, header = next(segment.batches(found.position))
    return header.magic < MAGIC_V2 or header.base_offset < offset


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
