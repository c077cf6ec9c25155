"""What can be asked of a partition's log: its offsets, its records, and where they stand.

Reads of records take no lock: they work on the list of segments and the end of the log as they were at one moment.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.clock import Clock
from barnabas.config.log_config import LogConfig
from barnabas.errors import OffsetOutOfRange
from barnabas.log.file_system import NoSuchFile, StorageFailure
from barnabas.log.partition.epoch_cache import EpochCache, EpochEndOffset, EpochEntry
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
from barnabas.log.producers.entry import ActiveProducer
from barnabas.log.producers.state import ProducerState
from barnabas.log.segment.segments import Segments
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.model import (
    NO_OFFSET,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)


class LogView:
    """The part of a partition log that changes nothing."""

    __slots__ = (
        "_clock",
        "_epochs",
        "_first_unstable_offset",
        "_guard",
        "_high_watermark",
        "_local",
        "_log_start_offset",
        "_producers",
        "_topic_id",
        "topic_partition",
    )

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
    ) -> None:
        self.topic_partition = topic_partition
        self._clock = clock
        self._local = local
        self._guard = guard
        self._epochs = epochs
        self._producers = producers
        self._topic_id = topic_id
        self._log_start_offset: int = log_start_offset
        self._high_watermark: int = log_start_offset
        self._first_unstable_offset: int = NO_OFFSET

    @property
    def directory(self) -> str:
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        return self._local.config

    @property
    def segments(self) -> Segments:
        """The segments at this moment."""
        return self._local.segments

    @property
    def size_bytes(self) -> int:
        return self._local.segments.size_bytes

    @property
    def topic_id(self) -> bytes | None:
        return self._topic_id

    @property
    def failure(self) -> str:
        """Why the log is not in use any more; empty as long as it is."""
        return self._guard.reason

    @property
    def log_start_offset(self) -> Offset:
        return Offset(self._log_start_offset)

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self._local.end.offset)

    @property
    def high_watermark(self) -> Offset:
        return Offset(self._high_watermark)

    @property
    def last_stable_offset(self) -> Offset:
        first_unstable_offset = self._first_unstable_offset
        if 0 <= first_unstable_offset < self._high_watermark:
            return Offset(first_unstable_offset)
        return Offset(self._high_watermark)

    @property
    def first_offset_on_disk(self) -> Offset:
        """The base offset of the first segment in the directory, which may have left the log already."""
        return Offset(self._local.first_offset_on_disk)

    @property
    def recovery_point(self) -> Offset:
        return Offset(self._local.recovery_point)

    @property
    def last_flush_ms(self) -> int:
        return self._local.last_flush_ms

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_message: bool = False,
    ) -> LogReadResult:
        """Batches from the one that holds the offset on, as far as the isolation lets see.

        Raises OffsetOutOfRange before the start of the log and behind its end.
        """
        local = self._local
        end = local.end
        segments = local.segments
        high_watermark = self._high_watermark
        last_stable_offset = self.last_stable_offset
        if offset < self._log_start_offset or offset > end.offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is not between its start {self._log_start_offset} and"
                f" its end {end.offset}"
            )
        result = LogReadResult(self._log_start_offset, end.offset, high_watermark, last_stable_offset)
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
        """The first record that is not older, or what one of ListOffsets' special timestamps stands for."""
        return find_offset(
            self._local.segments, self._epochs, timestamp, self._log_start_offset, self._local.end.offset
        )

    def time_candidates(self, timestamp: int) -> Iterator[TimeCandidate | None]:
        """The batches among which the first record that is not older must be, and pauses between."""
        return time_candidates(self._local.segments, timestamp, self._log_start_offset)

    def offsets_before(self, timestamp: int, max_count: int) -> list[int]:
        """What version 0 of ListOffsets asks for."""
        return offsets_before(
            self._local.segments,
            timestamp,
            max_count,
            self._log_start_offset,
            self._local.end.offset,
            self._clock.now_ms(),
        )

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        return self._epochs.entries()

    @property
    def latest_epoch(self) -> LeaderEpoch | None:
        epoch = self._epochs.latest_epoch
        return None if epoch < 0 else LeaderEpoch(epoch)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset | None:
        """Where the largest known epoch that is not above the given one ends."""
        return self._epochs.end_offset_for(epoch, self._local.end.offset)

    def active_producers(self) -> list[ActiveProducer]:
        with self._guard:
            return [
                ActiveProducer(
                    producer_id=ProducerId(entry.producer_id),
                    producer_epoch=ProducerEpoch(entry.producer_epoch),
                    last_sequence=entry.last_sequence,
                    last_offset=Offset(entry.last_data_offset),
                    last_timestamp=TimestampMs(entry.last_timestamp),
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=Offset(entry.current_txn_first_offset),
                )
                for entry in self._producers.producers.values()
            ]

    def has_late_transaction(self, max_transaction_timeout_ms: int) -> bool:
        with self._guard:
            return self._producers.has_late_transaction(self._clock.now_ms(), max_transaction_timeout_ms)

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self._local.directory!r}, offsets {self._log_start_offset} to {self._local.end.offset},"
            f" high watermark {self._high_watermark})"
        )
