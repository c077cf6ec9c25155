"""Reading a partition's log: records from an offset on, and offsets by time."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.errors import OffsetOutOfRange
from barnabas.log.file_system import NoSuchFile, StorageFailure
from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.partition.guard import Guard
from barnabas.log.partition.local_log import LocalLog
from barnabas.log.partition.offsets import (
    TimeCandidate,
    TimestampAndOffset,
    find_offset,
    offsets_before,
    time_candidates,
)
from barnabas.log.partition.read import (
    Isolation,
    LogReadResult,
    aborted_transactions,
    collect_aborted,
    read_into,
)
from barnabas.log.partition.watermarks import Watermarks
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.model import TopicPartition


class LogReader:
    """Reads one log and changes nothing.

    Threads: any thread reads, and takes no lock. A read works on the segments and the end of the log at one moment. If
    a segment was removed in the meantime, the read starts again.
    """

    __slots__ = ("_epochs", "_guard", "_local", "_topic_partition", "_watermarks")

    def __init__(
        self,
        topic_partition: TopicPartition,
        local: LocalLog,
        watermarks: Watermarks,
        epochs: EpochCache,
        guard: Guard,
    ) -> None:
        self._topic_partition = topic_partition
        self._local = local
        self._watermarks = watermarks
        self._epochs = epochs
        self._guard = guard

    def read(self, offset: int, max_bytes: int, isolation: Isolation, min_one_message: bool) -> LogReadResult:
        local = self._local
        end = local.end
        segments = local.segments
        watermarks = self._watermarks
        log_start_offset = watermarks.log_start_offset
        high_watermark = watermarks.high_watermark
        last_stable_offset = watermarks.last_stable_offset
        if offset < log_start_offset or offset > end.offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self._topic_partition} is not between its start {log_start_offset} and its end"
                f" {end.offset}"
            )
        result = LogReadResult(log_start_offset, end.offset, high_watermark, last_stable_offset)
        if isolation is Isolation.LOG_END:
            limit = end.offset
        elif isolation is Isolation.HIGH_WATERMARK:
            limit = high_watermark
        else:
            limit = last_stable_offset
            result.aborted_transactions = []
        if offset >= limit:
            return result
        try:
            read_into(result, segments, offset, local.bound_of(limit), max_bytes, min_one_message)
            if isolation is Isolation.TXN_COMMITTED and result.records is not None:
                result.aborted_transactions = aborted_transactions(segments, offset, result, end.offset)
        except StorageFailure as failure:
            if isinstance(failure, NoSuchFile) and local.segments is not segments:
                # The segment was removed, or replaced, before its files were opened.
                return self.read(offset, max_bytes, isolation, min_one_message)
            self._guard.fail(failure)
            raise
        return result

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        segments = self._local.segments
        return collect_aborted(segments, max(segments.floor_index(start_offset), 0), start_offset, end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        return find_offset(
            self._local.segments,
            self._epochs,
            timestamp,
            self._watermarks.log_start_offset,
            self._local.end.offset,
        )

    def time_candidates(self, timestamp: int) -> Iterator[TimeCandidate | None]:
        return time_candidates(self._local.segments, timestamp, self._watermarks.log_start_offset)

    def offsets_before(self, timestamp: int, max_count: int, now_ms: int) -> list[int]:
        return offsets_before(
            self._local.segments,
            timestamp,
            max_count,
            self._watermarks.log_start_offset,
            self._local.end.offset,
            now_ms,
        )
