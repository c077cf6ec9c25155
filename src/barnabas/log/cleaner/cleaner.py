"""Compaction: only the last record of each key stays, and offsets do not change.

Compaction has two passes. The first notes the last offset of each key of the dirty part, from the first dirty offset
on, as far as the map has room. The second copies the segments from the start of the log up to there without the records
that a later one has replaced, several small segments into one:

    00000000000000000000.log.cleaned    written, synced
    00000000000000000000.log.swap       renamed: from now on the cleaning counts, whatever happens
    00000000000000000000.log            renamed, once the segments that it replaces are out of the way

A crash before the first rename leaves the log unchanged. After a later crash, the next opening of the log completes the
cleaning.

The caller's thread reads, decodes and writes. It calls `on_bytes` for each batch, which may wait, let other threads
run, or raise CleaningAborted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from barnabas.clock import Clock
from barnabas.log.cleaner.filter import LastRecord, RecordFilter, map_batch
from barnabas.log.cleaner.offset_map import OffsetMap
from barnabas.log.cleaner.transactions import CleanedTransactions
from barnabas.log.file_system import StorageFailure
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.segment.segment import Segment
from barnabas.records.header import BatchHeader, parse_header
from barnabas.records.layout import INT32_MAX
from barnabas.value import Value

logger = logging.getLogger(__name__)

# The rest of several batches is written at once, but not so much that index entries become rare.
WRITE_BYTES: Final = 64 << 10


OnBytes = Callable[[int], None]


class MapTooSmall(Exception):
    """Not even the keys of one batch have room in the map."""


class Cleaned(Value, kw_only=True):
    """The result of a cleaning; the log is clean up to the end offset."""

    end_offset: int
    mapped_bytes: int
    read_bytes: int
    written_bytes: int
    read_records: int
    written_records: int
    records_without_key: int
    keys: int
    duration_ms: int


class Cleaner:
    """Cleans one log after the other, with one map."""

    def __init__(self, offsets: OffsetMap, clock: Clock) -> None:
        self._offsets = offsets
        self._clock = clock

    def clean(
        self, log: PartitionLog, first_dirty_offset: int, end_offset: int, on_bytes: OnBytes = lambda _: None
    ) -> Cleaned:
        """Cleans a log up to the end offset, or as far as the map has room for its keys."""
        started_ns = self._clock.monotonic_ns()
        mapped_bytes = self._map(log, first_dirty_offset, end_offset, on_bytes)
        cleaned_end_offset = self._offsets.latest_offset + 1
        if cleaned_end_offset <= first_dirty_offset < end_offset:
            raise MapTooSmall(
                f"the batch of {log.topic_partition} at offset {first_dirty_offset} has more keys than the cleaner can"
                f" note, {self._offsets.capacity}: log.cleaner.dedupe.buffer.size is too small"
            )
        transactions = CleanedTransactions()
        rewriter = _Rewriter(
            log,
            transactions,
            RecordFilter(
                self._offsets,
                transactions,
                {
                    producer.producer_id: LastRecord(producer.last_offset, producer.producer_epoch)
                    for producer in log.active_producers()
                },
                now_ms=self._clock.now_ms(),
                delete_retention_ms=log.config.delete_retention_ms,
                end_offset=end_offset,
            ),
            _legacy_delete_horizon_ms(log, first_dirty_offset),
            on_bytes,
        )
        segments = log.segments.holding(0, cleaned_end_offset)
        for group in group_segments(
            segments, log.config.segment_bytes, log.config.segment_index_bytes, end_offset
        ):
            rewriter.rewrite(group)
        return Cleaned(
            end_offset=cleaned_end_offset,
            mapped_bytes=mapped_bytes,
            read_bytes=rewriter.read_bytes,
            written_bytes=rewriter.written_bytes,
            read_records=rewriter.filter.records_read,
            written_records=rewriter.filter.records_written,
            records_without_key=rewriter.filter.records_without_key,
            keys=self._offsets.size,
            duration_ms=(self._clock.monotonic_ns() - started_ns) // 1_000_000,
        )

    def _map(self, log: PartitionLog, start_offset: int, end_offset: int, on_bytes: OnBytes) -> int:
        offsets = self._offsets
        offsets.clear()
        transactions = CleanedTransactions()
        transactions.add_aborted(log.aborted_transactions(start_offset, end_offset))
        segments = log.segments.holding(start_offset, end_offset)
        mapped_bytes = 0
        for index, segment in enumerate(segments):
            start_position = segment.start_position(start_offset)
            for _, header, data, position in segment.whole_batches(start_position):
                on_bytes(header.size_bytes)
                if not map_batch(offsets, transactions, start_offset, header, data, position):
                    return mapped_bytes
                mapped_bytes += header.size_bytes
            # The last offsets of a segment may be gone: the next segment shows how far it reached.
            next_offset = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
            offsets.latest_offset = next_offset - 1
        return mapped_bytes


def _legacy_delete_horizon_ms(log: PartitionLog, first_dirty_offset: int) -> int:
    """Tombstones of v0 and v1 go once their segment was last written before this."""
    clean = log.segments.holding(0, first_dirty_offset) if first_dirty_offset > 0 else []
    return clean[-1].modified_ms() - log.config.delete_retention_ms if clean else 0


class _Rewriter:
    """The second pass: rewrites group after group of segments and replaces the old ones."""

    def __init__(
        self,
        log: PartitionLog,
        transactions: CleanedTransactions,
        record_filter: RecordFilter,
        legacy_delete_horizon_ms: int,
        on_bytes: OnBytes,
    ) -> None:
        self._log = log
        self._transactions = transactions
        self.filter = record_filter
        self._legacy_delete_horizon_ms = legacy_delete_horizon_ms
        self._on_bytes = on_bytes
        self._pending: list[bytes] = []
        self._pending_headers: list[BatchHeader] = []
        self._pending_bytes = 0
        self.read_bytes = 0
        self.written_bytes = 0

    def rewrite(self, group: list[Segment]) -> None:
        target = self._log.create_cleaned_segment(group[0].base_offset)
        try:
            for index, segment in enumerate(group):
                next_offset = (
                    group[index + 1].base_offset if index + 1 < len(group) else segment.read_next_offset()
                )
                # Not only those with records left: the index of the new segment is made from these.
                self._transactions.add_aborted(
                    self._log.aborted_transactions(segment.base_offset, next_offset)
                )
                self._copy(segment, target)
            target.become_inactive()
            target.flush()
            target.set_modified_ms(group[-1].modified_ms())
        except Exception:
            # The opening of the log removes leftovers after a failure of the disk.
            with suppress(StorageFailure):
                target.delete()
            raise
        self._log.replace_segments([target], group)

    def _copy(self, segment: Segment, target: Segment) -> None:
        self.filter.keeps_legacy_tombstones = segment.modified_ms() > self._legacy_delete_horizon_ms
        for _, header, data, position in segment.whole_batches():
            self._on_bytes(header.size_bytes)
            self.read_bytes += header.size_bytes
            kept = self.filter.filter(header, data, position)
            if kept:
                self._pending.append(kept)
                self._pending_headers.append(parse_header(kept))
                self._pending_bytes += len(kept)
                if self._pending_bytes >= WRITE_BYTES:
                    self._write(target)
        self._write(target)
        for transaction in self._transactions.retained:
            target.transaction_index.append(transaction)
        self._transactions.retained.clear()

    def _write(self, target: Segment) -> None:
        if self._pending:
            target.append(b"".join(self._pending), self._pending_headers)
            self.written_bytes += self._pending_bytes
            self._pending = []
            self._pending_headers = []
            self._pending_bytes = 0


def group_segments(
    segments: Iterable[Segment], max_bytes: int, max_index_bytes: int, end_offset: int
) -> list[list[Segment]]:
    """Neighbours that fit into one segment together: its log, its indexes, and the reach of its base offset."""
    remaining = list(segments)
    groups: list[list[Segment]] = []
    size_bytes = offset_index_bytes = time_index_bytes = 0
    for index, segment in enumerate(remaining):
        size_bytes += segment.size_bytes
        offset_index_bytes += segment.offset_index.size_bytes
        time_index_bytes += segment.time_index.size_bytes
        next_offset = remaining[index + 1].base_offset if index + 1 < len(remaining) else end_offset
        fits = (
            size_bytes <= max_bytes
            and offset_index_bytes <= max_index_bytes
            and time_index_bytes <= max_index_bytes
            # An empty segment reaches nowhere.
            and (segment.size_bytes == 0 or next_offset - 1 - groups[-1][0].base_offset <= INT32_MAX)
            if groups
            else False
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
            offset_index_bytes = segment.offset_index.size_bytes
            time_index_bytes = segment.time_index.size_bytes
    return groups
