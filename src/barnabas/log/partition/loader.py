"""Opening a partition's log: recovers a log from its directory after a shutdown or a crash.

The steps have this order, so that a crash in the middle is harmless:

1. `.deleted` files are removed, and `.cleaned` ones, whose cleaning did not get far enough to count.
2. `.swap` files are a cleaning that did: the segments that they replace are removed, then the `.swap` files replace
   them. A `.swap` file at or behind a `.cleaned` one belongs to a replacement that did not, and is removed too.
3. Index files without a log file are removed; a log file whose indexes are missing, differ from the list of side files
   (side_files.py), or are damaged, is recovered. Offset and time indexes are compared at their first use.
4. After an unclean shutdown every segment from the one with the recovery point on is recovered: each batch checked,
   indexes rebuilt. The log ends before the first damage, and later segments are removed.
5. Leader epochs outside the log are dropped, and producer state is rebuilt from the newest snapshot.

Files that do not belong to the log are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.config.log_config import LogConfig
from barnabas.log.file_system import TEMPORARY_SUFFIX, WRITE
from barnabas.log.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    SEGMENT_SUFFIXES,
    SIDE_FILES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentFileName,
    parse_partition_dir,
    parse_segment_file,
    segment_file,
)
from barnabas.log.partition.environment import PriorState
from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.partition.segment_digests import expect_listed
from barnabas.log.producers.replay import rebuild_producer_state, replay_recovered_batch
from barnabas.log.producers.state import ProducerSettings, ProducerState
from barnabas.log.segment.factory import SegmentFactory
from barnabas.log.segment.replacement import split_overflowed, swap_in
from barnabas.log.segment.segment import Segment, SegmentOffsetOverflow
from barnabas.log.segment.segments import Segments
from barnabas.log.segment.sparse_index import CorruptIndex
from barnabas.log.side_files import LastStop
from barnabas.records.header import BatchHeader
from barnabas.records.layout import MAGIC_V2
from barnabas.value import Value

logger = logging.getLogger(__name__)

OnSegmentRecovered = Callable[[int], None]
"""Called with the number of segments that are still to be recovered."""

_OFFSET_MAX = (1 << 63) - 1
_OTHER_FILES = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SIDE_FILES)


class LoadedLog(Value, kw_only=True):
    segments: Segments
    producers: ProducerState
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    is_changed: bool
    """Whether files were created or removed, so that the directory must be synced."""
    is_flushed: bool
    """Whether anything of the log was flushed before."""
    is_gapless: bool
    listed_checksum: int
    """The checksum of the list of side files, if it is on the disk and covers all of them."""


class Loader:
    """Opens one log; `load` is called once."""

    def __init__(
        self,
        directory: str,
        factory: SegmentFactory,
        config: LogConfig,
        epochs: EpochCache,
        prior: PriorState,
        stop: LastStop,
        producer_settings: ProducerSettings,
        on_segment_recovered: OnSegmentRecovered | None,
    ) -> None:
        self._directory = directory
        self._where = str(parse_partition_dir(directory.rpartition("/")[2]).partition)
        self._factory = factory
        self._fs = factory.fs
        self._config = config
        self._epochs = epochs
        self._prior = prior
        self._stop = stop
        self._recovery_point = prior.recovery_point
        self._log_start_offset = prior.log_start_offset
        self._clean_shutdown = stop.is_clean
        self._side_files = stop.files
        self._producer_settings = producer_settings
        self._on_segment_recovered = on_segment_recovered
        self._names: dict[str, SegmentFileName] = {}
        self._segments: list[Segment] = []
        self._is_changed = not stop.is_clean
        self._has_removed = False

    def load(self) -> LoadedLog:
        self._list_files()
        self._remove_unfinished()
        self._finish_swaps()
        self._open_segments()
        if not self._clean_shutdown:
            self._recover_unflushed()
        log_end_offset = self._settle_end()
        if self._has_removed:
            # Files that the previous process removed, or started to remove, must not reappear beside newly written
            # ones.
            self._fs.sync_dir(self._directory)
        segments = Segments(self._segments)
        log_start_offset = max(self._log_start_offset, segments.base_offsets[0])
        self._epochs.forget_from_end(log_end_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        producers = self._producer_state()
        producers.remove_stray_snapshots(segments.base_offsets)
        self._rebuild(producers, segments, log_start_offset, log_end_offset, self._clean_shutdown)
        return LoadedLog(
            segments=segments,
            producers=producers,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=log_end_offset
            if self._clean_shutdown
            else min(self._recovery_point, log_end_offset),
            is_changed=self._is_changed,
            is_flushed=self._recovery_point > 0,
            is_gapless=self._prior.is_gapless,
            listed_checksum=self._stop.checksum,
        )

    def _list_files(self) -> None:
        if self._stop.is_new:
            return
        for name in self._fs.list_dir(self._directory):
            parsed = parse_segment_file(name)
            if parsed is not None:
                self._names[name] = parsed
            elif name.removesuffix(TEMPORARY_SUFFIX) in _OTHER_FILES:
                continue
            elif parse_segment_file(name.removesuffix(TEMPORARY_SUFFIX)) is not None:
                # An index that was being rebuilt.
                self._fs.remove(f"{self._directory}/{name}")
            else:
                logger.warning("%s/%s is not a file of the log: it is left alone", self._directory, name)

    def _remove(self, name: str) -> None:
        del self._names[name]
        self._fs.remove(f"{self._directory}/{name}", missing_ok=True)
        self._is_changed = self._has_removed = True

    def _in_state(self, state: str) -> list[tuple[str, SegmentFileName]]:
        return [(name, parsed) for name, parsed in self._names.items() if parsed.state == state]

    def _remove_unfinished(self) -> None:
        for name, _ in self._in_state(DELETED_SUFFIX):
            self._remove(name)
        cleaned = self._in_state(CLEANED_SUFFIX)
        first_cleaned = min((parsed.base_offset for _, parsed in cleaned), default=_OFFSET_MAX)
        for name, parsed in self._in_state(SWAP_SUFFIX):
            if parsed.base_offset >= first_cleaned:
                self._remove(name)
        if cleaned:
            # Without its cleaned file, an unfinished swap would count.
            self._fs.sync_dir(self._directory)
        for name, _ in cleaned:
            self._remove(name)

    def _finish_swaps(self) -> None:
        swaps = self._in_state(SWAP_SUFFIX)
        if not swaps:
            return
        replacing = [
            self._factory.existing(self._directory, parsed.base_offset, self._config, state=SWAP_SUFFIX)
            for _, parsed in swaps
            if parsed.kind == LOG_SUFFIX
        ]
        if replacing:
            first = min(segment.base_offset for segment in replacing)
            end = max(segment.read_next_offset() for segment in replacing)
            for name, parsed in self._in_state(""):
                if first <= parsed.base_offset < end:
                    logger.info("%s/%s has been replaced by a cleaned segment", self._directory, name)
                    self._remove(name)
            for segment in replacing:
                segment.release()
            # A removed segment must not reappear beside the one that replaces it.
            self._fs.sync_dir(self._directory)
        for name, parsed in swaps:
            final_name = segment_file(parsed.base_offset, parsed.kind)
            self._fs.rename(f"{self._directory}/{name}", f"{self._directory}/{final_name}")
            del self._names[name]
            self._names[final_name] = SegmentFileName(parsed.base_offset, parsed.kind, "")
        self._is_changed = True

    def _open_segments(self) -> None:
        base_offsets = sorted(
            parsed.base_offset for _, parsed in self._in_state("") if parsed.kind == LOG_SUFFIX
        )
        known = set(base_offsets)
        for name, parsed in self._in_state(""):
            if parsed.kind in SEGMENT_SUFFIXES and parsed.base_offset not in known:
                logger.warning("%s/%s has no log file: it is removed", self._directory, name)
                self._remove(name)
        first_unflushed = _OFFSET_MAX
        if not self._clean_shutdown:
            first_unflushed = max((base for base in base_offsets if base <= self._recovery_point), default=0)
        for base_offset in base_offsets:
            segment = self._factory.existing(
                self._directory,
                base_offset,
                self._config,
                has_transaction_index=self._has(base_offset, TRANSACTION_INDEX_SUFFIX),
            )
            try:
                # Those that are not flushed are recovered in any case.
                if self._side_files is not None and base_offset < first_unflushed:
                    expect_listed(segment, self._side_files, is_current=self._clean_shutdown)
                segment.sanity_check(
                    has_offset_index=self._has(base_offset, OFFSET_INDEX_SUFFIX),
                    has_time_index=self._has(base_offset, TIME_INDEX_SUFFIX),
                )
                self._segments.append(segment)
            except CorruptIndex as error:
                logger.warning("segment %s must be recovered: %s", segment.path, error)
                # Those that are not flushed are recovered later, in order: here the ones before may yet be damaged.
                if base_offset >= first_unflushed:
                    self._segments.append(segment)
                else:
                    self._recover_flushed(segment)

    def _has(self, base_offset: int, kind: str) -> bool:
        return segment_file(base_offset, kind) in self._names

    def _recover_flushed(self, segment: Segment) -> None:
        """Rebuilds the indexes of a segment; one that an old broker filled beyond their reach becomes several."""
        try:
            self._recover_for_good(segment)
            self._segments.append(segment)
        except SegmentOffsetOverflow as overflow:
            logger.warning("segment %s is split: %s", segment.path, overflow)
            parts = split_overflowed(segment, self._create_cleaned)
            swap_in(self._fs, self._directory, parts, [segment], lambda: None)
            segment.delete()
            for part in parts:
                self._recover_for_good(part)
                self._segments.append(part)

    def _recover_for_good(self, segment: Segment) -> None:
        """Recovers a segment that no later flush looks at, so that its indexes are on the disk.

        Until they are, there is no offset index of that name: after a crash the segment is recovered again.
        """
        index = segment.offset_index
        path = index.path
        index.rename(path + CLEANED_SUFFIX)
        self._fs.sync_dir(self._directory)
        self._recover(segment)
        segment.flush()
        index.rename(path)
        self._fs.sync_dir(self._directory)

    def _create_cleaned(self, base_offset: int) -> Segment:
        return self._factory.create(self._directory, base_offset, self._config, CLEANED_SUFFIX)

    def _recover_unflushed(self) -> None:
        segments = Segments(self._segments)
        unflushed = segments.holding(self._recovery_point, _OFFSET_MAX)
        for done, segment in enumerate(unflushed):
            is_cut = self._recover(segment, cut_on_overflow=True) > 0
            # The previous process may have truncated the file: the removed data must not reappear behind new records.
            self._fs.open(segment.path, WRITE).sync()
            following = unflushed[done + 1 :]
            if following and self._prior.is_gapless and not is_cut:
                is_cut = self._has_lost_its_end(segment, following[0])
            if is_cut:
                self._remove_segments(following)
                following = []
            if self._on_segment_recovered is not None:
                self._on_segment_recovered(len(following))
            if not following:
                break

    def _has_lost_its_end(self, segment: Segment, following: Segment) -> bool:
        """Whether batches are missing before the following segment, though none was cut in two."""
        end_offset = segment.read_next_offset()
        if end_offset >= following.base_offset:
            return False
        logger.warning("segment %s has lost what followed offset %d", segment.path, end_offset - 1)
        return True

    def _recover(self, segment: Segment, *, cut_on_overflow: bool = False) -> int:
        """Checks the segment and rebuilds its indexes, with the producers' state at its base offset.

        An offset beyond the range of the indexes counts as damage where that is more likely: in unflushed data.
        """
        producers = self._producer_state()
        segments = Segments(self._segments)
        self._rebuild(producers, segments, self._log_start_offset, segment.base_offset, False)

        def on_batch(header: BatchHeader, data: bytes, position: int) -> None:
            if header.magic >= MAGIC_V2:
                if header.partition_leader_epoch > self._epochs.latest_epoch:
                    self._epochs.assign(header.partition_leader_epoch, header.base_offset)
                replay_recovered_batch(producers, segment, header, data, position)

        truncated_bytes = segment.recover(on_batch, cut_on_overflow=cut_on_overflow)
        # The next segment's recovery starts with this one's end.
        producers.take_snapshot()
        self._is_changed = True
        return truncated_bytes

    def _remove_segments(self, segments: list[Segment]) -> None:
        # The last one first, each for good before the next: the log must not have a hole after another crash.
        for segment in reversed(segments):
            logger.warning("segment %s is removed: the log ends before it", segment.path)
            self._segments.remove(segment)
            segment.delete()
            self._fs.remove(
                f"{self._directory}/{segment_file(segment.base_offset, PRODUCER_SNAPSHOT_SUFFIX)}",
                missing_ok=True,
            )
            self._fs.sync_dir(self._directory)

    def _settle_end(self) -> int:
        """The end of the log; without any segment, or if all are before the log's start, creates one there."""
        if self._segments:
            last = self._segments[-1]
            log_end_offset = last.read_next_offset()
            if self._clean_shutdown:
                # Thousands of logs may be opened, and few of them used.
                last.release()
            if log_end_offset >= self._log_start_offset:
                return log_end_offset
            logger.warning(
                "the log of %s ends at offset %d, before its start offset %d: it starts again from there",
                self._where,
                log_end_offset,
                self._log_start_offset,
            )
            self._remove_segments(list(self._segments))
            self._epochs.clear()
            self._producer_state().truncate_fully_and_start_at(self._log_start_offset)
        segment = self._factory.create(self._directory, self._log_start_offset, self._config)
        self._segments.append(segment)
        self._is_changed = True
        return self._log_start_offset

    def _producer_state(self) -> ProducerState:
        """A separate state each time, on the current snapshots."""
        listed: list[int] | None = None
        if self._stop.is_new:
            listed = []
        elif not self._is_changed:
            listed = sorted(
                int(parsed.base_offset)
                for parsed in self._names.values()
                if parsed.kind == PRODUCER_SNAPSHOT_SUFFIX and not parsed.state
            )
        return ProducerState(
            self._where,
            self._directory,
            self._fs,
            settings=self._producer_settings,
            snapshot_offsets=listed,
        )

    def _rebuild(
        self,
        producers: ProducerState,
        segments: Segments,
        log_start_offset: int,
        end_offset: int,
        after_clean_stop: bool,
    ) -> None:
        rebuild_producer_state(
            producers,
            segments,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
            now_ms=self._factory.clock.now_ms(),
            has_never_seen_producers=self._config.message_magic < MAGIC_V2
            or (after_clean_stop and not producers.snapshot_offsets and not self._lists_snapshots()),
        )

    def _lists_snapshots(self) -> bool:
        return any(name.endswith(PRODUCER_SNAPSHOT_SUFFIX) for name in self._side_files or ())
