"""Offsets by time, as ListOffsets asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from barnabas.records.header import BatchHeader
from barnabas.records.layout import MAGIC_V0
from barnabas.records.search import find_timestamp

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6

# A part of a millisecond's work.
HEADERS_AT_ONCE: Final = 64


class TimestampAndOffset(NamedTuple):
    """An offset found for a time; the leader epoch is -1 where it is not known."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch


class TimeCandidate(NamedTuple):
    """A batch whose header leaves open whether it has a record of the time, exactly or at least."""

    segment: Segment
    position: int
    header: BatchHeader
    timestamp: int
    start_offset: int
    is_exact: bool


def find_offset(
    segments: Segments, epochs: EpochCache, target: int, log_start_offset: int, log_end_offset: int
) -> TimestampAndOffset | None:
    """The first record whose timestamp is not below the target, or the result of a special target."""
    if target in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        # Records of old formats at the log's start have no epoch; the first known one may begin behind them.
        earliest = epochs.earliest()
        known = earliest is not None and earliest.start_offset <= log_start_offset
        return _at(log_start_offset, earliest.epoch if known and earliest is not None else NO_LEADER_EPOCH)
    if target == LATEST_TIMESTAMP:
        return _at(log_end_offset, epochs.latest_epoch)
    if target in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        # Nothing is tiered.
        return _at(NO_OFFSET, NO_LEADER_EPOCH)
    for candidate in time_candidates(segments, target, log_start_offset):
        if candidate is not None:
            data = candidate.segment.read_batch(candidate.position, candidate.header)
            found = find_timestamp(
                data, candidate.timestamp, candidate.start_offset, is_exact=candidate.is_exact
            )
            if found is not None:
                return TimestampAndOffset(*found, candidate.header.partition_leader_epoch)
    return None


def is_search(target: int) -> bool:
    """Whether a target has `find_offset` look into batches."""
    return target >= 0 or target == MAX_TIMESTAMP


def time_candidates(segments: Segments, target: int, log_start_offset: int) -> Iterator[TimeCandidate | None]:
    """The batches that may hold the record that `find_offset` looks for, and None where that has taken a while."""
    is_exact = target == MAX_TIMESTAMP
    if is_exact:
        # The first record with the largest timestamp of the log.
        segment = max(segments.all, key=lambda each: each.max_timestamp)
        target = segment.max_timestamp
        log_start_offset = 0
        batches = segment.batches(segment.start_position(segment.offset_of_max_timestamp))
    else:
        found = next((each for each in segments.all if each.largest_timestamp >= target), None)
        if found is None:
            return
        segment = found
        batches = segment.batches_since(target, log_start_offset)
    for number, (position, header) in enumerate(batches, 1):
        if number % HEADERS_AT_ONCE == 0:
            yield None
        if is_exact:
            if header.max_timestamp == target:
                if header.magic > MAGIC_V0:
                    yield TimeCandidate(segment, position, header, target, 0, is_exact)
                return
        elif header.max_timestamp >= target and header.last_offset >= log_start_offset:
            yield TimeCandidate(segment, position, header, target, log_start_offset, is_exact)


def offsets_before(
    segments: Segments, target: int, max_count: int, log_start_offset: int, log_end_offset: int, now_ms: int
) -> list[int]:
    """The answer to ListOffsets v0: base offsets of segments last written at or before the time, newest first."""
    ends = [(max(segment.base_offset, log_start_offset), segment.modified_ms()) for segment in segments.all]
    if segments.active.size_bytes > 0:
        ends.append((log_end_offset, now_ms))
    if target == LATEST_TIMESTAMP:
        count = len(ends)
    elif target == EARLIEST_TIMESTAMP:
        count = 1
    else:
        count = max(
            (index + 1 for index, (_, modified_ms) in enumerate(ends) if modified_ms <= target), default=0
        )
    chosen = [offset for offset, _ in ends[:count]]
    return sorted(chosen[max(count - max_count, 0) :], reverse=True)


def _at(offset: int, epoch: int) -> TimestampAndOffset:
    return TimestampAndOffset(NO_TIMESTAMP, Offset(offset), LeaderEpoch(epoch))
