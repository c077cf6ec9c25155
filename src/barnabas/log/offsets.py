"""Offsets by time, as ListOffsets asks for them."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.log.epoch_cache import EpochCache
from barnabas.log.segments import Segments
from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from barnabas.records.layout import MAGIC_V0
from barnabas.records.reader import decode_batch

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6


class TimestampAndOffset(NamedTuple):
    """An offset found for a time; the leader epoch is -1 where it is not known."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch


def find_offset(
    segments: Segments, epochs: EpochCache, target: int, log_start_offset: int, log_end_offset: int
) -> TimestampAndOffset | None:
    """The first record whose timestamp is not below the target, or what a special target stands for."""
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
    if target == MAX_TIMESTAMP:
        return _find_max_timestamp(segments)
    for segment in segments.all:
        if segment.largest_timestamp >= target:
            found = segment.find_offset_by_timestamp(target, log_start_offset)
            return (
                None
                if found is None
                else TimestampAndOffset(found.timestamp, found.offset, found.leader_epoch)
            )
    return None


def offsets_before(
    segments: Segments, target: int, max_count: int, log_start_offset: int, log_end_offset: int, now_ms: int
) -> list[int]:
    """What ListOffsets v0 answers: base offsets of segments last written at or before the time, newest first."""
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


def _find_max_timestamp(segments: Segments) -> TimestampAndOffset | None:
    """The first record with the largest timestamp of the log."""
    segment = max(segments.all, key=lambda each: each.max_timestamp)
    timestamp = segment.max_timestamp
    start_position = segment.start_position(segment.offset_of_max_timestamp)
    for position, header in segment.batches(start_position):
        if header.max_timestamp != timestamp:
            continue
        if header.magic > MAGIC_V0:
            for record in decode_batch(segment.read_batch(position, header)):
                if record.timestamp == timestamp:
                    return TimestampAndOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None
    return None


def _at(offset: int, epoch: int) -> TimestampAndOffset:
    return TimestampAndOffset(NO_TIMESTAMP, Offset(offset), LeaderEpoch(epoch))
