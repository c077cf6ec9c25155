"""Appending to a partition's log, for a leader and for a follower."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.config.log_config import LogConfig
from barnabas.errors import OutOfOrderSequenceNumber, RecordListTooLarge
from barnabas.log.file_system import Data
from barnabas.log.partition.append import (
    AppendInfo,
    ProducerChanges,
    UnexpectedAppendOffset,
    append_policy,
    prepare_producers,
)
from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.partition.local_log import LocalLog
from barnabas.log.partition.upkeep import SegmentUpkeep
from barnabas.log.partition.watermarks import Watermarks
from barnabas.log.producers.recall import recall_batches
from barnabas.log.producers.replay import note_aborted
from barnabas.log.producers.state import NO_GUARD, ProducerState
from barnabas.log.segment.segment import Segment
from barnabas.model import LeaderEpoch, Offset, TopicPartition
from barnabas.records.analyze import AnalyzedRecords
from barnabas.records.header import BatchHeader
from barnabas.records.layout import INT32_MAX, MAGIC_V2
from barnabas.records.policy import AppendOrigin, AppendPolicy
from barnabas.records.validate import ValidatedRecords, validate_records


class Appender:
    """Checks batches against the producers of the log, writes them, and updates epochs, producers and watermarks.

    Owns `policy`: the topic's rules for a client's records, replaced as soon as its settings change.

    Threads: the caller holds the log's lock. Any thread may read `policy`.
    """

    __slots__ = (
        "_epochs",
        "_local",
        "_producers",
        "_segments",
        "_topic_partition",
        "_validate_fully",
        "_watermarks",
        "policy",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        local: LocalLog,
        watermarks: Watermarks,
        epochs: EpochCache,
        producers: ProducerState,
        segments: SegmentUpkeep,
        validate_fully: bool,
    ) -> None:
        self._topic_partition = topic_partition
        self._local = local
        self._watermarks = watermarks
        self._epochs = epochs
        self._producers = producers
        self._segments = segments
        self._validate_fully = validate_fully
        self.policy: AppendPolicy = append_policy(local.config, validate_fully=validate_fully)

    def update_config(self, config: LogConfig) -> None:
        self.policy = append_policy(config, validate_fully=self._validate_fully)

    def append_as_leader(
        self,
        records: Data,
        leader_epoch: int,
        origin: AppendOrigin,
        verification_guard: int,
        transaction_version: int,
        now_ms: int,
        is_alone: bool,
        only_briefly: bool,
    ) -> AppendInfo:
        validated = validate_records(
            records,
            base_offset=Offset(self._local.end.offset),
            now_ms=now_ms,
            leader_epoch=LeaderEpoch(leader_epoch),
            policy=self.policy,
            origin=origin,
            only_briefly=only_briefly,
        )
        return self._append_validated(
            validated, origin, verification_guard, transaction_version, now_ms, is_alone
        )

    def append_validated(
        self,
        validated: ValidatedRecords,
        policy: AppendPolicy,
        leader_epoch: int,
        verification_guard: int,
        now_ms: int,
        is_alone: bool,
    ) -> AppendInfo | None:
        if policy is not self.policy or not validated.move_to(
            Offset(self._local.end.offset), LeaderEpoch(leader_epoch)
        ):
            return None
        return self._append_validated(validated, AppendOrigin.CLIENT, verification_guard, 0, now_ms, is_alone)

    def _append_validated(
        self,
        validated: ValidatedRecords,
        origin: AppendOrigin,
        verification_guard: int,
        transaction_version: int,
        now_ms: int,
        is_alone: bool,
    ) -> AppendInfo:
        info = AppendInfo(
            validated.first_offset,
            validated.last_offset,
            self._watermarks.log_start_offset,
            len(validated.data),
            validated.max_timestamp,
            validated.offset_of_max_timestamp,
            validated.log_append_time,
            validated.converted_count,
        )
        self._append(
            validated.data,
            validated.headers,
            info,
            origin,
            verification_guard,
            transaction_version,
            now_ms,
            validated.head,
        )
        if is_alone:
            self._watermarks.raise_high_watermark(self._local.end.offset)
        return info

    def append_as_follower(self, records: Data, analyzed: AnalyzedRecords, now_ms: int) -> AppendInfo:
        log_start_offset = self._watermarks.log_start_offset
        info = AppendInfo(
            analyzed.first_offset,
            analyzed.last_offset,
            log_start_offset,
            len(records),
            analyzed.max_timestamp,
            analyzed.offset_of_max_timestamp,
        )
        if not analyzed.headers:
            return info
        first_offset = (
            analyzed.last_offset_of_first_batch if analyzed.first_offset < 0 else analyzed.first_offset
        )
        log_end_offset = self._local.end.offset
        if first_offset < log_end_offset:
            raise UnexpectedAppendOffset(
                f"records for {self._topic_partition} from offset {first_offset} to {analyzed.last_offset} do not"
                f" continue a log that ends at {log_end_offset} and starts at {log_start_offset}",
                first_offset,
                analyzed.last_offset,
            )
        self._append(records, analyzed.headers, info, AppendOrigin.REPLICATION, NO_GUARD, 0, now_ms)
        return info

    def _append(
        self,
        data: Data,
        headers: list[BatchHeader],
        info: AppendInfo,
        origin: AppendOrigin,
        verification_guard: int,
        transaction_version: int,
        now_ms: int,
        head: bytes = b"",
    ) -> None:
        local = self._local
        size_bytes = len(data)
        if size_bytes > local.segment_bytes:
            raise RecordListTooLarge(
                f"{size_bytes} bytes of records for {self._topic_partition} exceed a segment's {local.segment_bytes}"
            )
        try:
            changes = prepare_producers(
                self._producers, headers, data, origin, verification_guard, transaction_version
            )
        except OutOfOrderSequenceNumber:
            if not self._recall_producers(headers):
                raise
            changes = prepare_producers(
                self._producers, headers, data, origin, verification_guard, transaction_version
            )
        if changes is not None and changes.duplicate is not None:
            duplicate = changes.duplicate
            info.first_offset = duplicate.first_offset
            info.last_offset = duplicate.last_offset
            info.log_append_time = duplicate.timestamp
            info.is_duplicate = True
            return
        for header in headers:
            if header.magic < MAGIC_V2:
                # Without epochs in the records, only truncation to the high watermark is safe.
                self._epochs.clear()
            elif header.partition_leader_epoch >= 0:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        last_offset = headers[-1].last_offset
        if local.must_roll(size_bytes, last_offset, info.max_timestamp, now_ms):
            self._segments.roll(self._roll_offset(headers))
        segment = local.append(data, headers, head)
        if changes is not None:
            self._apply(changes, segment)
        self._producers.map_end_offset = last_offset + 1
        if local.unflushed_count >= local.flush_messages:
            local.flush()

    def _recall_producers(self, headers: Sequence[BatchHeader]) -> bool:
        """Reads batches into the producers' state that snapshots do not keep; false if there are none."""
        recalled = False
        for header in headers:
            entry = self._producers.entry(header.producer_id)
            if entry is not None and entry.is_partial and entry.producer_epoch == header.producer_epoch:
                recall_batches(self._local.segments, entry)
                recalled = True
        return recalled

    def _apply(self, changes: ProducerChanges, segment: Segment) -> None:
        producers = self._producers
        for update in changes.updates.values():
            producers.apply(update)
        for completed in changes.completed:
            had_index = segment.transaction_index.exists
            note_aborted(segment, producers, completed)
            if segment.transaction_index.exists and not had_index:
                self._local.note_new_file()
            producers.complete(completed)
        for producer_id in changes.ended_verifications:
            producers.end_verification(producer_id)
        self._watermarks.follow_transactions()

    def _roll_offset(self, headers: Sequence[BatchHeader]) -> int:
        """The new segment begins where the log ends, unless the records are too far from there for its indexes."""
        log_end_offset = self._local.end.offset
        first, last = headers[0], headers[-1]
        if last.last_offset - log_end_offset <= INT32_MAX:
            return log_end_offset
        return first.base_offset if first.magic >= MAGIC_V2 else last.last_offset - INT32_MAX
