"""The dirty part of a compacted log: the records that were appended since it was last cleaned."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas.log.partition.partition_log import PartitionLog
from barnabas.value import Value

logger = logging.getLogger(__name__)


class LogToClean(Value, kw_only=True):
    """A log with its dirty part: from the first dirty offset to the end offset, where the uncleanable part begins."""

    log: PartitionLog
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if self.is_overdue and self.dirty_bytes > 0:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def log_to_clean(log: PartitionLog, checkpoint: int | None, now_ms: int) -> LogToClean:
    """The dirty part of a log that was last cleaned up to the checkpoint."""
    first_dirty_offset = _first_dirty_offset(log, checkpoint)
    segments = log.segments
    active = segments.active
    sealed = segments.all[:-1]
    dirty_sealed = [
        segment
        for segment, end in zip(sealed, segments.base_offsets[1:], strict=True)
        if end > first_dirty_offset
    ]
    # Records that are undecided, in the active segment, or too young stay as they are.
    uncleanable_offset: int = min(log.last_stable_offset, active.base_offset)
    if log.config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - log.config.min_compaction_lag_ms
        for segment in dirty_sealed:
            if segment.largest_timestamp > youngest_ms:
                uncleanable_offset = min(uncleanable_offset, segment.base_offset)
                break
    uncleanable_offset = max(uncleanable_offset, first_dirty_offset)
    # Only whole segments are cleaned: the one that holds the bound is not.
    index = segments.floor_index(uncleanable_offset)
    end_offset = segments.all[index].base_offset if 0 <= index < len(sealed) else active.base_offset
    dirty_start = min(first_dirty_offset, end_offset)
    cleanable = segments.holding(dirty_start, end_offset) if dirty_start < end_offset else []
    clean = segments.holding(0, first_dirty_offset) if first_dirty_offset > 0 else []
    return LogToClean(
        log=log,
        first_dirty_offset=first_dirty_offset,
        end_offset=end_offset,
        clean_bytes=sum(segment.size_bytes for segment in clean),
        dirty_bytes=sum(segment.size_bytes for segment in cleanable),
        is_overdue=_is_overdue(log, [segment.first_timestamp() for segment in dirty_sealed], now_ms),
    )


def _first_dirty_offset(log: PartitionLog, checkpoint: int | None) -> int:
    if checkpoint is None or checkpoint < log.log_start_offset:
        return log.log_start_offset
    if checkpoint > log.log_end_offset:
        logger.warning(
            "the checkpoint says that %s is clean up to %d, but it ends at %d: all of it counts as dirty",
            log.topic_partition,
            checkpoint,
            log.log_end_offset,
        )
        return log.log_start_offset
    return checkpoint


def _is_overdue(log: PartitionLog, first_timestamps: Iterable[int | None], now_ms: int) -> bool:
    known = [timestamp for timestamp in first_timestamps if timestamp is not None and timestamp > 0]
    return bool(known) and min(known) < now_ms - max(log.config.max_compaction_lag_ms, 0)
