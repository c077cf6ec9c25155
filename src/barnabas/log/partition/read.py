"""Reading a range of a log: which part of which file, and which transactions in it were aborted."""

from __future__ import annotations

from enum import IntEnum

from barnabas.log.segment.segments import Segments
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.primitives.file_slice import FileSlice


class Isolation(IntEnum):
    """The visible part of a log: everything for a replica, replicated records for a consumer, or only decided ones."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


class OffsetBound:
    """An offset and where it stands: a reader of a segment stops at the position, and reads no later segment."""

    __slots__ = ("offset", "position", "segment_base_offset")

    def __init__(self, offset: int, segment_base_offset: int, position: int) -> None:
        self.offset = offset
        self.segment_base_offset = segment_base_offset
        self.position = position


class LogReadResult:
    """Records from an offset on, as a part of a file; None when there are none to be seen.

    `aborted_transactions` is None unless the reader asked for committed records alone.
    """

    __slots__ = (
        "aborted_transactions",
        "first_entry_is_cut",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
        "position",
        "records",
        "segment_base_offset",
    )

    def __init__(
        self,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        last_stable_offset: int,
    ) -> None:
        self.records: FileSlice | None = None
        self.segment_base_offset = -1
        self.position = -1
        self.first_entry_is_cut = False
        self.aborted_transactions: list[AbortedTransaction] | None = None
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else self.records.size_bytes


def read_into(
    result: LogReadResult,
    segments: Segments,
    offset: int,
    bound: OffsetBound,
    max_bytes: int,
    min_one_message: bool,
) -> None:
    """Finds the records from the offset on; a segment whose last records are gone leads on to the next one."""
    index = max(segments.floor_index(offset), 0)
    while index < len(segments.all):
        segment = segments.all[index]
        if segment.base_offset > bound.segment_base_offset:
            return
        is_last = segment.base_offset == bound.segment_base_offset
        max_position = bound.position if is_last else segment.size_bytes
        found = segment.read(offset, max_bytes, max_position, min_one_message)
        if found is not None:
            result.records = found.records
            result.segment_base_offset = segment.base_offset
            result.position = found.position
            result.first_entry_is_cut = found.first_entry_is_cut
            return
        index += 1


def locate(segments: Segments, offset: int, log_end: OffsetBound) -> OffsetBound:
    """Where an offset stands that is not behind the end of the log."""
    if offset >= log_end.offset:
        return log_end
    index = max(segments.floor_index(offset), 0)
    while index < len(segments.all):
        segment = segments.all[index]
        found = segment.locate(offset)
        if found is not None:
            return OffsetBound(offset, segment.base_offset, found.position)
        index += 1
    return log_end


def aborted_transactions(
    segments: Segments, offset: int, result: LogReadResult, log_end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions with records in the read range. A marker may be in any later segment."""
    assert result.records is not None
    index = segments.floor_index(result.segment_base_offset)
    end_offset: int | None = segments.all[index].offset_index.upper_bound(
        result.position, result.records.size_bytes
    )
    if end_offset is None:
        end_offset = segments.base_offset_after(result.segment_base_offset)
    if end_offset is None:
        end_offset = log_end_offset
    return collect_aborted(segments, index, offset, end_offset)


def collect_aborted(
    segments: Segments, index: int, start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    aborted: list[AbortedTransaction] = []
    for segment in segments.all[index:]:
        found = segment.transaction_index.collect(start_offset, end_offset)
        aborted += found.transactions
        if found.is_complete:
            break
    return aborted
