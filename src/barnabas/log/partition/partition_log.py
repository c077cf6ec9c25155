"""A partition's log: an append-only sequence of record batches in segments, with its offsets, epochs and producers.

Flushed records survive a crash of the machine; `recovery_point` is the offset up to which they are flushed. After a
crash the log has its state of some moment after its last flush: it never has a hole. For this, segments are created and
removed in order, each on the disk, by name, before the next; a truncation is synced before anything is appended again;
and a segment is synced before the next one takes records, unless the log is known to be gapless (never cleaned): then
recovery itself can detect that the end of a segment is missing, and the scheduler does the sync.

A log has parts. Each part owns what it names and states its invariants and its thread rule:

    Guard           the lock, and the reason why the log is out of use
    LocalLog        segments on disk, the end offset, the recovery point
    Watermarks      log start offset, high watermark, last stable offset (a picture of them is there)
    EpochCache      leader epochs and their start offsets
    ProducerState   producers, open transactions, snapshots
    Appender        the append path          LogReader     reads, offsets by time
    SegmentUpkeep   rolls, cleaned segments  Retention     deletion of old segments     Truncation

A storage failure leaves the log unchanged and disables it: part of a write may be on the disk. The owner of the
directory gets the failure, and opens the log again when the disk is repaired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas.config.log_config import LogConfig
from barnabas.errors import OffsetOutOfRange
from barnabas.log.file_system import Data, StorageFailure
from barnabas.log.names import (
    LEADER_EPOCH_CHECKPOINT,
    PRODUCER_SNAPSHOT_SUFFIX,
    SIDE_FILES,
    parse_partition_dir,
    segment_file,
)
from barnabas.log.partition.append import AppendInfo, OffsetsOutOfOrder
from barnabas.log.partition.appender import Appender
from barnabas.log.partition.environment import LogEnvironment, PriorState
from barnabas.log.partition.epoch_cache import EpochCache, EpochEndOffset, EpochEntry
from barnabas.log.partition.epoch_recovery import check_epochs
from barnabas.log.partition.guard import Guard, OnStorageFailure
from barnabas.log.partition.loader import LoadedLog, Loader, OnSegmentRecovered
from barnabas.log.partition.local_log import LocalLog
from barnabas.log.partition.offsets import TimeCandidate, TimestampAndOffset
from barnabas.log.partition.read import Isolation, LogReadResult
from barnabas.log.partition.reader import LogReader
from barnabas.log.partition.retention import Retention
from barnabas.log.partition.topic_id import TopicIdFile
from barnabas.log.partition.truncation import Truncation
from barnabas.log.partition.upkeep import SegmentUpkeep
from barnabas.log.partition.watermarks import Watermarks
from barnabas.log.producers.entry import ActiveProducer
from barnabas.log.producers.state import NO_GUARD
from barnabas.log.segment.factory import SegmentFactory
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.log.side_files import NEVER_OPENED, SideFiles, read_last_stop
from barnabas.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.records.analyze import analyze_records
from barnabas.records.policy import AppendOrigin, AppendPolicy
from barnabas.records.validate import ValidatedRecords


class PartitionLog:
    """One thread opens a log; `close`, `delete` or `take_offline` ends its use.

    Threads: any thread calls any method. Methods that change the log take its lock here, so that its parts need not;
    only Retention takes it itself, in steps. Reads take no lock. Syncing happens outside the lock.
    """

    __slots__ = (
        "_appender",
        "_clock",
        "_epochs",
        "_guard",
        "_local",
        "_producers",
        "_reader",
        "_retention",
        "_segments",
        "_topic_id",
        "_truncation",
        "_watermarks",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        environment: LogEnvironment,
        guard: Guard,
        local: LocalLog,
        epochs: EpochCache,
        loaded: LoadedLog,
        topic_id: TopicIdFile,
    ) -> None:
        """Use `open`."""
        self.topic_partition = topic_partition
        where = str(topic_partition)
        clock = environment.clock
        producers = loaded.producers
        watermarks = Watermarks(where, local, epochs, producers, loaded.log_start_offset)
        segments = SegmentUpkeep(environment.fs, local, producers, guard, loaded.is_gapless)
        self._clock = clock
        self._guard = guard
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._topic_id = topic_id
        self._watermarks = watermarks
        self._segments = segments
        self._reader = LogReader(topic_partition, local, watermarks, epochs, guard)
        self._appender = Appender(
            topic_partition, local, watermarks, epochs, producers, segments, environment.validate_fully
        )
        self._retention = Retention(clock, guard, local, watermarks, segments)
        self._truncation = Truncation(where, clock, local, watermarks, epochs, producers, segments)

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        environment: LogEnvironment,
        config: LogConfig,
        prior: PriorState | None = None,
        topic_id: bytes | None = None,
        on_failure: OnStorageFailure | None = None,
        on_segment_recovered: OnSegmentRecovered | None = None,
    ) -> PartitionLog:
        """Opens the log in the directory, which is created if it is missing, and recovers it if need be."""
        if prior is None:
            prior = PriorState()
        fs = environment.fs
        topic_partition = parse_partition_dir(directory.rpartition("/")[2]).partition
        where = str(topic_partition)
        is_made = fs.make_dirs(directory, syncs=False)
        guard = Guard(where, environment.scheduler, on_failure)
        if is_made and prior.clean_shutdown and not prior.lists_side_files:
            # Thousands of logs may be created at once, and nothing is in their directories.
            stop = NEVER_OPENED
        else:
            stop = read_last_stop(
                fs,
                f"{directory}/{SIDE_FILES}",
                is_clean=prior.clean_shutdown,
                lists_side_files=prior.lists_side_files,
            )
        epochs = EpochCache(
            fs,
            f"{directory}/{LEADER_EPOCH_CHECKPOINT}",
            guard.schedule,
            is_synced=prior.recovery_point > 0,
            side_files=stop.files if stop.is_clean else None,
            is_new=stop.is_new,
        )
        factory = SegmentFactory(fs=fs, clock=environment.clock, rng=environment.rng)
        loaded = Loader(
            directory,
            factory,
            config,
            epochs,
            prior,
            stop,
            environment.producer_settings,
            on_segment_recovered,
        ).load()
        if epochs.is_damaged or not stop.is_clean:
            check_epochs(epochs, where, stop.epochs, loaded)
        local = LocalLog(directory, config, loaded, factory, guard, epochs, environment.on_flush)
        log = cls(
            topic_partition,
            environment,
            guard,
            local,
            epochs,
            loaded,
            TopicIdFile(fs, directory, is_new=stop.is_new),
        )
        # Topics of clusters below protocol level 2.8 have no id: zeros.
        if topic_id is not None and any(topic_id):
            log.assign_topic_id(topic_id)
        return log

    # The identity of the log, and its offsets.

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
        return self._topic_id.value

    @property
    def failure(self) -> str:
        """Why the log is out of use; empty as long as it is in use."""
        return self._guard.reason

    @property
    def log_start_offset(self) -> Offset:
        return Offset(self._watermarks.log_start_offset)

    @property
    def log_end_offset(self) -> Offset:
        return Offset(self._local.end.offset)

    @property
    def high_watermark(self) -> Offset:
        return Offset(self._watermarks.high_watermark)

    @property
    def last_stable_offset(self) -> Offset:
        return Offset(self._watermarks.last_stable_offset)

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

    @property
    def append_policy(self) -> AppendPolicy:
        """The topic's current rules for records; replaced as soon as its settings change."""
        return self._appender.policy

    # Appends.

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

        Raises Kafka's error for records that must not be written; then the log is unchanged. The transaction version is
        that of the transaction which a marker ends. If the leader `is_alone` in sync, records are committed at once.
        With `only_briefly`, records that take long to check raise RecordsTakeLong: see `append_validated`.
        """
        with self._guard:
            return self._appender.append_as_leader(
                records,
                leader_epoch,
                origin,
                verification_guard,
                transaction_version,
                self._clock.now_ms(),
                is_alone,
                only_briefly,
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

        None if they have to be validated again: the policy has changed, or the records cannot get the current end
        offset of the log.
        """
        with self._guard:
            return self._appender.append_validated(
                validated, policy, leader_epoch, verification_guard, self._clock.now_ms(), is_alone
            )

    def append_as_follower(self, records: Data) -> AppendInfo:
        """Writes the leader's batches, with their offsets and epochs. Omits an incomplete last batch.

        Offsets must increase from batch to batch and start at the end of the log or above it: batches of a compacted
        log have gaps between them. Raises OffsetsOutOfOrder or UnexpectedAppendOffset otherwise.
        """
        analyzed = analyze_records(records)
        if not analyzed.offsets_increase:
            raise OffsetsOutOfOrder(
                f"the offsets of {len(analyzed.headers)} batches for {self.topic_partition} do not rise"
            )
        if analyzed.valid_bytes < len(records):
            records = records[: analyzed.valid_bytes]
        with self._guard:
            return self._appender.append_as_follower(records, analyzed, self._clock.now_ms())

    # Reads, none of which takes the lock.

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_message: bool = False,
    ) -> LogReadResult:
        """Batches from the one that holds the offset on, as far as the isolation allows.

        Raises OffsetOutOfRange before the start of the log and behind its end.
        """
        return self._reader.read(offset, max_bytes, isolation, min_one_message)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return self._reader.aborted_transactions(start_offset, end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record that is not older, or the result of one of ListOffsets' special timestamps."""
        return self._reader.offset_for_timestamp(timestamp)

    def time_candidates(self, timestamp: int) -> Iterator[TimeCandidate | None]:
        """The batches among which the first record that is not older must be, and pauses between."""
        return self._reader.time_candidates(timestamp)

    def offsets_before(self, timestamp: int, max_count: int) -> list[int]:
        """The result of version 0 of ListOffsets."""
        return self._reader.offsets_before(timestamp, max_count, self._clock.now_ms())

    # The watermarks and the start of the log.

    def advance_high_watermark(self, candidate: int) -> bool:
        """Raises the high watermark, if the candidate is higher."""
        with self._guard:
            return self._watermarks.raise_high_watermark(candidate)

    def update_high_watermark(self, offset: int) -> Offset:
        """Sets what the leader or a checkpoint says, within the bounds of the log."""
        with self._guard:
            return Offset(self._watermarks.update_high_watermark(offset))

    def advance_log_start_offset(self, offset: int) -> bool:
        """Drops the records before the offset. Raises OffsetOutOfRange if it is above the high watermark."""
        with self._guard:
            return self._watermarks.advance_log_start_offset(offset)

    def delete_records(self, before_offset: int) -> Offset:
        """DeleteRecords: -1 means the high watermark. Returns the new start offset of the log."""
        with self._guard:
            watermarks = self._watermarks
            if before_offset == -1:
                before_offset = watermarks.high_watermark
            if before_offset < 0:
                raise OffsetOutOfRange(f"there is no offset {before_offset} in {self.topic_partition}")
            watermarks.advance_log_start_offset(before_offset)
            return Offset(watermarks.log_start_offset)

    # Leader epochs.

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

    def assign_epoch_start(self, leader_epoch: int) -> Offset:
        """The leader of the epoch begins to write at the end of the log. The offset is on the disk on return.

        Only a leader calls this, once for each epoch, before it appends: a follower gets its epochs from the batches.
        """
        with self._guard:
            start_offset = Offset(self._local.end.offset)
            self._epochs.assign(leader_epoch, start_offset)
            return start_offset

    # Producers.

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

    def remove_expired_producers(self) -> None:
        with self._guard:
            self._producers.remove_expired(self._clock.now_ms())

    # Segments: flushing, rolling, retention, cleaning, truncation.

    def flush(self, *, syncs_above: bool = True) -> None:
        """Returns once all that was appended before is on the disk; then the recovery point is behind it.

        Without `syncs_above` the directory above has been synced since the log was created.
        """
        self._guard.check()
        try:
            self._local.flush(syncs_above=syncs_above)
        except StorageFailure as failure:
            self._guard.fail(failure)
            raise

    def roll(self, base_offset: int = 0) -> Segment:
        """Begins a new segment at the end of the log, or at the base offset if that is higher."""
        with self._guard:
            return self._segments.roll(base_offset)

    def delete_old_segments(self) -> int:
        """Deletes the segments that retention lets go of; how many.

        They leave the log together. Their files go one at a time, each surely gone before the next, or there might be
        a hole after a crash; the lock is free in between.
        """
        return self._retention.delete_old_segments()

    def create_cleaned_segment(self, base_offset: int) -> Segment:
        """An empty segment for the cleaner to write to."""
        return self._segments.create_cleaned(base_offset)

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Replaces segments by cleaned ones (whose files are `.cleaned`).

        A crash at any step leaves either the old ones or the new. Deleted old ones are no error, but then the new ones
        must not be used.
        """
        with self._guard:
            self._segments.replace(new, old)

    def truncate_to(self, offset: int) -> bool:
        """Removes the batches that hold the offset or later ones; false if there are none. It is on the disk on return.

        The log then ends at the offset, but for two cases. If the offset is within a batch, the log ends before that
        batch, so that appends leave no hole. If the log is gapless, it ends with its last batch. The recovery point may
        go back: its owner writes the checkpoint again before anything is appended.
        """
        with self._guard:
            return self._truncation.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes everything; the log continues at the offset. The recovery point goes back as with `truncate_to`."""
        with self._guard:
            self._truncation.truncate_fully_and_start_at(offset)

    # The log as a whole.

    def assign_topic_id(self, topic_id: bytes) -> None:
        with self._guard:
            self._topic_id.assign(self._local.directory, topic_id, syncs=self._local.is_flushed)

    def update_config(self, config: LogConfig) -> None:
        with self._guard:
            self._local.update_config(config)
            self._appender.update_config(config)

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
        """Closes the files and bars the log: its directory has failed. Takes no lock, so any thread may call."""
        self._guard.bar(reason)
        self._local.release()

    def delete(self) -> None:
        """Removes the directory with all that is in it."""
        with self._guard:
            # First, so that another thread that is about to use the log does not take missing files for a failure.
            self._guard.bar("it has been deleted")
            self._local.delete()

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self._local.directory!r}, offsets {self.log_start_offset} to {self._local.end.offset},"
            f" high watermark {self.high_watermark})"
        )
