"""A partition's log: an append-only sequence of record batches in segments, with what a broker must know about it.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset
          │                    │                 │                 └ the next record's offset
          │                    │                 └ replicated: what consumers may see
          │                    └ decided: no transaction before it is open
          └ the first record that has not been deleted

Records that are flushed survive a crash of the machine; `recovery_point` is the offset up to which they are. After a
crash the log is what it was at some moment after its last flush: it never has a hole. To that end segments come and go
in order, each on the disk, by name, before the next; a truncation is synced before anything is appended again; and a
segment is synced before its successor takes records, unless the log is known to be `gapless` (never cleaned): then
recovery itself can tell that the end of a segment is missing, and the sync is left to the scheduler.

Threads: appends and everything else that changes the log take its lock. Reads take none: they work on the list of
segments and the end of the log as they were at one moment. Syncing goes on outside the lock.

A storage failure leaves the log as it was, unusable from then on: part of a write may be on the disk. Whoever
owns the directory is told, and opens the log again when the disk is well.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from barnabas.clock import Clock
from barnabas.config.log_config import LogConfig
from barnabas.errors import (
    InconsistentTopicId,
    OutOfOrderSequenceNumber,
    RecordListTooLarge,
)
from barnabas.log.checkpoints import id_to_text, read_topic_id, write_topic_id
from barnabas.log.file_system import Data, FileSystem
from barnabas.log.names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    SIDE_FILES,
    parse_partition_dir,
    segment_file,
)
from barnabas.log.partition.append import (
    AppendInfo,
    OffsetsOutOfOrder,
    ProducerChanges,
    UnexpectedAppendOffset,
    append_policy,
    prepare_producers,
)
from barnabas.log.partition.epoch_cache import EpochCache
from barnabas.log.partition.epoch_recovery import check_epochs
from barnabas.log.partition.guard import Guard, OnStorageFailure
from barnabas.log.partition.loader import Loader, OnSegmentRecovered, SegmentFactory
from barnabas.log.partition.local_log import LocalLog, OnFlush
from barnabas.log.partition.upkeep import LogUpkeep
from barnabas.log.producers.recall import recall_batches
from barnabas.log.producers.replay import note_aborted
from barnabas.log.producers.state import NO_GUARD, ProducerSettings, ProducerState
from barnabas.log.scheduler import InlineScheduler, Scheduler
from barnabas.log.segment.segment import Segment
from barnabas.log.side_files import SideFiles, read_last_stop
from barnabas.model import (
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from barnabas.records.analyze import analyze_records
from barnabas.records.header import BatchHeader
from barnabas.records.layout import INT32_MAX, MAGIC_V2
from barnabas.records.policy import AppendOrigin, AppendPolicy
from barnabas.records.validate import ValidatedRecords, validate_records

_RNG: Final = Random(0)


class PartitionLog(LogUpkeep):
    """One thread opens it; `close` ends its use. See the module for what holds in between."""

    __slots__ = ("_policy", "_validate_fully")

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        fs: FileSystem,
        clock: Clock,
        local: LocalLog,
        guard: Guard,
        epochs: EpochCache,
        producers: ProducerState,
        log_start_offset: int,
        topic_id: bytes | None,
        gapless: bool,
        validate_fully: bool,
    ) -> None:
        """Use `open`."""
        super().__init__(
            topic_partition,
            clock,
            local,
            guard,
            epochs,
            producers,
            log_start_offset,
            topic_id,
            fs=fs,
            gapless=gapless,
        )
        self._validate_fully = validate_fully
        self._policy: AppendPolicy = append_policy(local.config, validate_fully=validate_fully)
        self._update_first_unstable_offset()

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        fs: FileSystem,
        clock: Clock,
        config: LogConfig,
        scheduler: Scheduler | None = None,
        rng: Random | None = None,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        lists_side_files: bool = True,
        gapless: bool = False,
        topic_id: bytes | None = None,
        producer_settings: ProducerSettings | None = None,
        validate_fully: bool = False,
        on_failure: OnStorageFailure | None = None,
        on_flush: OnFlush | None = None,
        on_segment_recovered: OnSegmentRecovered | None = None,
    ) -> PartitionLog:
        """Opens the log in the directory, which is made if it is not there, and recovers it if need be.

        Recovery point and start offset are those of the log directory's checkpoints; `gapless` says that the log was
        never cleaned. The random numbers are for the jitter of rolls. A clean stop of ours `lists_side_files`.
        """
        topic_partition = parse_partition_dir(directory.rpartition("/")[2]).partition
        where = str(topic_partition)
        fs.make_dirs(directory, syncs=False)
        guard = Guard(where, InlineScheduler() if scheduler is None else scheduler, on_failure)
        is_flushed = recovery_point > 0
        stop = read_last_stop(
            fs, f"{directory}/{SIDE_FILES}", is_clean=clean_shutdown, lists_side_files=lists_side_files
        )
        epochs = EpochCache(
            fs,
            f"{directory}/{LEADER_EPOCH_CHECKPOINT}",
            guard.schedule,
            is_synced=is_flushed,
            side_files=stop.files if stop.is_clean else None,
        )
        factory = SegmentFactory(fs=fs, clock=clock, rng=_RNG if rng is None else rng)
        loaded = Loader(
            directory,
            where,
            factory=factory,
            config=config,
            epochs=epochs,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean_shutdown=stop.is_clean,
            side_files=stop.files,
            gapless=gapless,
            producer_settings=ProducerSettings() if producer_settings is None else producer_settings,
            on_segment_recovered=on_segment_recovered,
        ).load()
        if epochs.is_damaged or not stop.is_clean:
            check_epochs(epochs, where, stop.epochs, loaded)
        log = cls(
            topic_partition,
            fs=fs,
            clock=clock,
            local=LocalLog(
                directory,
                config,
                loaded,
                factory,
                guard,
                epochs,
                on_flush,
                is_flushed,
                stop.checksum,
            ),
            guard=guard,
            epochs=epochs,
            producers=loaded.producers,
            log_start_offset=loaded.log_start_offset,
            topic_id=read_topic_id(fs, f"{directory}/{PARTITION_METADATA}"),
            gapless=gapless,
            validate_fully=validate_fully,
        )
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def append_as_leader(
        self,
        records: Data,
        *,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: int = NO_GUARD,
        transaction_version: int = 0,
        is_alone: bool = False,
        only_briefly: bool = False,
    ) -> AppendInfo:
        """Checks the records, gives them offsets, epoch and perhaps time (in place, if that is possible), writes them.

        Raises Kafka's error for what must not be written, and then the log is unchanged. The transaction version is
        that of the transaction which a marker ends. What a leader writes that is alone in sync is committed at once.
        With `only_briefly`, records that take long to check raise RecordsTakeLong: see `append_validated`.
        """
        with self._guard:
            now_ms = self._clock.now_ms()
            validated = validate_records(
                records,
                base_offset=Offset(self._local.end.offset),
                now_ms=now_ms,
                leader_epoch=LeaderEpoch(leader_epoch),
                policy=self._policy,
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
        *,
        leader_epoch: int,
        verification_guard: int = NO_GUARD,
        is_alone: bool = False,
    ) -> AppendInfo | None:
        """Writes a client's records that were validated elsewhere, by the log's policy of that time.

        None if they have to be validated again: the policy is another one now, or the records cannot be given the
        offset at which the log ends now.
        """
        with self._guard:
            if policy is not self._policy or not validated.move_to(
                Offset(self._local.end.offset), LeaderEpoch(leader_epoch)
            ):
                return None
            return self._append_validated(
                validated, AppendOrigin.CLIENT, verification_guard, 0, self._clock.now_ms(), is_alone
            )

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
            self._log_start_offset,
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
            self._raise_high_watermark(self._local.end.offset)
        return info

    @property
    def append_policy(self) -> AppendPolicy:
        """What the topic asks of records now; another object as soon as its settings change."""
        return self._policy

    def append_as_follower(self, records: Data) -> AppendInfo:
        """Writes records as the leader has them, offsets and epochs included; a last batch that is cut is left out."""
        analyzed = analyze_records(records)
        if not analyzed.offsets_increase:
            raise OffsetsOutOfOrder(
                f"the offsets of {len(analyzed.headers)} batches for {self.topic_partition} do not rise"
            )
        if analyzed.valid_bytes < len(records):
            records = records[: analyzed.valid_bytes]
        with self._guard:
            info = AppendInfo(
                analyzed.first_offset,
                analyzed.last_offset,
                self._log_start_offset,
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
                    f"records for {self.topic_partition} from offset {first_offset} to {analyzed.last_offset}"
                    f" do not continue a log that ends at {log_end_offset} and starts at {self._log_start_offset}",
                    first_offset,
                    analyzed.last_offset,
                )
            self._append(
                records, analyzed.headers, info, AppendOrigin.REPLICATION, NO_GUARD, 0, self._clock.now_ms()
            )
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
                f"{size_bytes} bytes of records for {self.topic_partition} exceed a segment's {local.segment_bytes}"
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
            self.roll(self._roll_offset(headers))
        segment = local.append(data, headers, head)
        if changes is not None:
            self._apply(changes, segment)
        self._producers.map_end_offset = last_offset + 1
        if local.unflushed_count >= local.flush_messages:
            local.flush()

    def _recall_producers(self, headers: Sequence[BatchHeader]) -> bool:
        """Has producers remember what snapshots do not keep; false if there is nothing to remember."""
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
        self._update_first_unstable_offset()

    def _roll_offset(self, headers: Sequence[BatchHeader]) -> int:
        """The new segment begins where the log ends, unless the records are too far from there for its indexes."""
        log_end_offset = self._local.end.offset
        first, last = headers[0], headers[-1]
        if last.last_offset - log_end_offset <= INT32_MAX:
            return log_end_offset
        return first.base_offset if first.magic >= MAGIC_V2 else last.last_offset - INT32_MAX

    def assign_epoch_start(self, leader_epoch: int) -> Offset:
        """The leader of the epoch begins to write at the end of the log. The offset is on the disk on return.

        Only a leader calls this, once for each epoch, before it appends: a follower gets its epochs from the batches.
        """
        with self._guard:
            start_offset = Offset(self._local.end.offset)
            self._epochs.assign(leader_epoch, start_offset)
            return start_offset

    def assign_topic_id(self, topic_id: bytes) -> None:
        with self._guard:
            if self._topic_id is None:
                path = f"{self._local.directory}/{PARTITION_METADATA}"
                write_topic_id(self._fs, path, topic_id, syncs=self._local.is_flushed)
                self._topic_id = topic_id
            elif self._topic_id != topic_id:
                raise InconsistentTopicId(
                    f"{self._local.directory} belongs to the topic with id {id_to_text(self._topic_id)},"
                    f" not to {id_to_text(topic_id)}"
                )

    def start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, *, bumps_epochs: bool = False
    ) -> int:
        """A guard for the first batch of a transaction that the coordinator is asked about; 0 if none is needed.

        A producer that `bumps_epochs` has a new one for each transaction (transaction version 2). Raises
        InvalidProducerEpoch for one that has been fenced.
        """
        with self._guard:
            return self._producers.start_verification(
                producer_id, sequence, producer_epoch, self._clock.now_ms(), bumps_epochs=bumps_epochs
            )

    def update_config(self, config: LogConfig) -> None:
        with self._guard:
            self._local.update_config(config)
            self._policy = append_policy(config, validate_fully=self._validate_fully)

    def rename_dir(self, name: str, *, syncs: bool = True) -> None:
        """Gives the partition's directory another name, for good unless the caller syncs the directory above."""
        with self._guard:
            self._local.rename_dir(name, syncs=syncs)
            self._producers.move_to(self._local.directory)
            self._epochs.move_to(f"{self._local.directory}/{LEADER_EPOCH_CHECKPOINT}")

    def close(self) -> None:
        """Leaves the files as a clean stop does; after a storage failure, as they are."""
        if self._guard.reason:
            self._local.release()
            return
        with self._guard:
            self._producers.take_snapshot()
            others: SideFiles = {
                segment_file(offset, PRODUCER_SNAPSHOT_SUFFIX): None
                for offset in self._producers.snapshot_offsets
            }
            epochs = self._epochs.digest()
            if epochs is not None:
                others[LEADER_EPOCH_CHECKPOINT] = epochs
            self._local.close(others)
            self._guard.bar("it has been closed")

    def take_offline(self, reason: str) -> None:
        """Lets go of the files and bars the log: its directory has failed. Takes no lock, so anybody may call."""
        self._guard.bar(reason)
        self._local.release()

    def delete(self) -> None:
        """Removes the directory with all that is in it."""
        with self._guard:
            # First: whoever is about to use it, in another thread, must not take the missing files for a failure.
            self._guard.bar("it has been deleted")
            self._local.delete()
