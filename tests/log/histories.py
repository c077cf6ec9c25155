"""Random histories of a partition log on a disk that crashes, from a seed; model.py says what must be left.

A history is a sequence of steps: appends of every kind, flushes, rolls, deletions, truncations, cleanings, checkpoints,
stops and crashes. A crash comes between two steps or in the middle of one, opening the log after a crash included. It
is a power cut, which loses and garbles what was not synced, or the end of the process, which loses nothing. Now and
then the disk fails once, and the log is opened anew.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from barnabas.clock import ManualClock
from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError
from barnabas.log.checkpoints import read_offsets, write_offsets
from barnabas.log.names import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from barnabas.log.partition.environment import LogEnvironment, PriorState
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.model import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder, end_transaction_marker
from barnabas.records.header import iterate_headers
from barnabas.records.layout import CompressionType, ControlRecordType
from barnabas.records.policy import AppendOrigin
from barnabas.records.reader import decode_batch
from tests.log.model import ModelBatch, ModelProducers, ModelState, batches_of, model_batch
from tests.log.simulated import SimulatedCrash, SimulatedFileSystem

ROOT: Final = "/data"
PARTITION: Final = TopicPartition("topic", 0)
DIRECTORY: Final = f"{ROOT}/{PARTITION}"
PRODUCERS: Final = 3
CRASHED: Final = "which crashed"
FAILED: Final = "which failed"


class DeferredScheduler:
    """Keeps what is scheduled until a history says that it happens; a crash forgets it."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], None]] = []

    def schedule(self, name: str, action: Callable[[], None], delay_ms: int = 0) -> None:
        self.actions.append(action)


class History:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        # Of its own, so that seeds of histories that once failed stand for the same steps.
        self.epoch_rng = Random(seed)
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(self.clock)
        self.fs.make_dirs(ROOT)
        self.config = LogConfig(
            segment_bytes=self.rng.choice((6_000, 12_000, 25_000)),
            segment_index_bytes=self.rng.choice((64, 1024, 4096)),
            index_interval_bytes=self.rng.choice((0, 200, 1000)),
            retention_bytes=self.rng.choice((-1, 6_000, 30_000)),
            flush_messages=self.rng.choice((1, 7, 1 << 62, 1 << 62)),
            preallocate=self.rng.random() < 0.2,
        )
        # A log that is cleaned has gaps, and says so from the start, as a broker does by its cleaner's checkpoint.
        self.is_cleaned = self.rng.random() < 0.4
        self.epoch = 0
        self.sequences = dict.fromkeys(range(PRODUCERS), 0)
        self.in_transaction: set[int] = set()
        self.state = ModelState()
        # The state before the step that is under way: a crash in the middle may leave either.
        self.previous = self.state
        # What a kill in the middle of a step left in the page cache alone: a power cut may bring back what was before.
        self.undone: list[ModelState] = []
        # Where the log ever started: what was let go of and came back with a crash has lost its epochs.
        self.highest_start = 0
        self.scheduler = DeferredScheduler()
        self.steps: list[str] = []
        self.log = self._open(clean_shutdown=False)

    def run(self, steps: int) -> None:
        choices = list(STEPS)
        weights = [STEPS[step] for step in choices]
        for _ in range(steps):
            step = self.rng.choices(choices, weights)[0]
            self.steps.append(step.__name__)
            self.previous = self.state
            if self.rng.random() < 0.08:
                self.fs.crash_after(self.rng.randrange(12))
            elif self.rng.random() < 0.04:
                self._inject()
            try:
                step(self)
            except SimulatedCrash:
                self.steps.append(CRASHED)
                self._crash()
            except KafkaStorageError:
                self._reopen_after_failure()
            else:
                self.fs.crash_after(1 << 60)
                if self.log.failure:
                    self._reopen_after_failure()
                self.fs.faults.clear()
        self.steps.append("the end")
        self._crash()

    # Steps.

    def append(self) -> None:
        self._append_as_leader(self._records())

    def append_idempotent(self) -> None:
        producer_id = self.rng.choice(
            [each for each in self.sequences if each not in self.in_transaction] or [-1]
        )
        if producer_id < 0:
            return
        self._append_as_leader(self._records(), producer_id=producer_id)

    def append_transactional(self) -> None:
        producer_id = self.rng.randrange(PRODUCERS)
        self.in_transaction.add(producer_id)
        self._append_as_leader(self._records(), producer_id=producer_id, is_transactional=True)

    def end_transaction(self) -> None:
        if not self.in_transaction:
            return
        producer_id = self.rng.choice(sorted(self.in_transaction))
        self.in_transaction.discard(producer_id)
        control_type = self.rng.choice((ControlRecordType.ABORT, ControlRecordType.COMMIT))

        def build(offset: int, epoch: int) -> bytes:
            return end_transaction_marker(
                control_type=control_type,
                timestamp=TimestampMs(self.clock.now_ms()),
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(0),
                coordinator_epoch=0,
                base_offset=Offset(offset),
                partition_leader_epoch=LeaderEpoch(epoch),
            )

        self._write_as_leader(build, AppendOrigin.COORDINATOR)

    def append_as_follower(self) -> None:
        offset = int(self.log.log_end_offset)
        if self.is_cleaned:
            offset += self.rng.choice((0, 0, 3))
        parts = []
        for _ in range(self.rng.randint(1, 3)):
            data = self._build(self._records(), offset, self.epoch)
            parts.append(data)
            offset = iterate_headers(data)[-1].next_offset
        self.state = self.state.appended(*map(model_batch, parts))
        self.log.append_as_follower(b"".join(parts))
        self._note_flush()

    def new_epoch(self) -> None:
        self.epoch += self.rng.randint(1, 3)

    def flush(self) -> None:
        self.log.flush()
        self.state = self.state.flushed()
        self.undone = []

    def roll(self) -> None:
        self.log.roll()
        self._note_flush()

    def run_scheduled(self) -> None:
        actions = self.scheduler.actions
        if actions:
            actions.pop(self.rng.randrange(len(actions)))()
            self._note_flush()

    def delete_old_segments(self) -> None:
        self._raise_high_watermark()
        # What retention lets go of may be gone from the moment on at which it begins.
        self.state = replace(self.state, start_offset=self._start_after_retention())
        self.previous = self.state
        self.log.delete_old_segments()
        self._note_start()
        self._note_flush()

    def delete_records(self) -> None:
        self._raise_high_watermark()
        start, end = int(self.log.log_start_offset), int(self.log.high_watermark)
        self.log.delete_records(self.rng.randint(start, end))
        self._note_start()

    def truncate(self) -> None:
        start, end = int(self.log.segments.base_offsets[0]), int(self.log.log_end_offset)
        offset = self.rng.randint(max(start, end - 60), end)
        # A crash in the middle leaves any part of what is to go.
        self.previous = replace(self.state, flushed_offset=min(self.state.flushed_offset, offset))
        self.state = self.state.truncated(offset)
        self.log.truncate_to(offset)
        self._note_start()
        end_offset = int(self.log.log_end_offset)
        self.state = replace(
            self.state, end_offset=end_offset, flushed_offset=min(self.state.flushed_offset, end_offset)
        )
        self._forget_lost_producers()
        if self.epoch_rng.random() < 0.5 and self.log.latest_epoch is not None:
            # The leader wrote on in an epoch that this replica knows.
            self.epoch = self.log.latest_epoch
        else:
            self.epoch += 1
        self.checkpoint()

    def truncate_fully(self) -> None:
        offset = int(self.log.log_end_offset) + self.rng.randint(-20, 20)
        offset = max(offset, 0)
        self.previous = replace(self.state, flushed_offset=0)
        self.state = ModelState((), offset, offset, offset)
        self.log.truncate_fully_and_start_at(offset)
        self._forget_lost_producers()
        self.epoch += 1
        self.checkpoint()

    def clean(self) -> None:
        """Replaces sealed segments by one that lacks some of their batches, as the cleaner would."""
        sealed = self.log.segments.all[:-1]
        if not self.is_cleaned or not sealed:
            return
        first = self.rng.randrange(len(sealed))
        chosen = sealed[first : first + self.rng.randint(1, 3)]
        cleaned = self.log.create_cleaned_segment(chosen[0].base_offset)
        dropped: set[int] = set()
        for segment in chosen:
            for _, header, data, at in segment.whole_batches():
                if header.producer_id < 0 and self.rng.random() < 0.5:
                    dropped.add(header.base_offset)
                elif cleaned.can_append_offset(header.last_offset):
                    if cleaned.index_is_full:
                        # A real cleaner groups segments so that this does not happen.
                        cleaned.delete()
                        return
                    cleaned.append(data[at : at + header.size_bytes], [header])
            for transaction in segment.transaction_index.entries():
                cleaned.transaction_index.append(transaction)
        cleaned.become_inactive()
        self.state = replace(
            self.state,
            batches=tuple(batch for batch in self.state.batches if batch.base_offset not in dropped),
        )
        self.log.replace_segments([cleaned], chosen)
        self.state = self.state.flushed()

    def checkpoint(self) -> None:
        offsets = {PARTITION: int(self.log.recovery_point)}
        write_offsets(self.fs, f"{ROOT}/{RECOVERY_POINT_CHECKPOINT}", offsets)
        offsets = {PARTITION: int(self.log.log_start_offset)}
        write_offsets(self.fs, f"{ROOT}/{LOG_START_OFFSET_CHECKPOINT}", offsets)

    def crash(self) -> None:
        self._crash()

    def stop_and_start(self) -> None:
        self.log.flush()
        self.state = self.state.flushed()
        self.log.close()
        self.checkpoint()
        self.fs.crash_after(1 << 60)
        self.scheduler = DeferredScheduler()
        self.log = self._open(clean_shutdown=True)
        found = batches_of(self.log)
        assert self.state.is_exactly(found), "a clean stop changed the log"
        self._check(found)
        self._forget_lost_producers()

    # What the steps are made of.

    def _records(self) -> int:
        return self.rng.randint(1, 5)

    def _build(
        self, records: int, offset: int, epoch: int, producer_id: int = -1, is_transactional: bool = False
    ) -> bytes:
        builder = BatchBuilder(
            base_offset=Offset(offset),
            partition_leader_epoch=LeaderEpoch(epoch),
            compression=CompressionType.NONE,
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0 if producer_id >= 0 else -1),
            base_sequence=self.sequences[producer_id] if producer_id >= 0 else -1,
            is_transactional=is_transactional,
        )
        self.clock.advance_ms(1)
        rng = Random(self.clock.now_ms())
        for _ in range(records):
            builder.append(
                TimestampMs(self.clock.now_ms() - rng.randrange(3)), b"key", rng.randbytes(rng.randrange(400))
            )
        return builder.build()

    def _append_as_leader(self, records: int, producer_id: int = -1, is_transactional: bool = False) -> None:
        sent = self._build(records, 0, -1, producer_id, is_transactional)

        def build(offset: int, epoch: int) -> bytes:
            data = bytearray(sent)
            data[:8] = offset.to_bytes(8, "big")
            data[12:16] = epoch.to_bytes(4, "big", signed=True)
            return bytes(data)

        self._write_as_leader(build, AppendOrigin.CLIENT)
        if producer_id >= 0:
            self.sequences[producer_id] += records

    def _write_as_leader(self, build: Callable[[int, int], bytes], origin: AppendOrigin) -> None:
        offset = int(self.log.log_end_offset)
        self.state = self.state.appended(model_batch(build(offset, self.epoch)))
        info = self.log.append_as_leader(build(0, -1), leader_epoch=self.epoch, origin=origin)
        assert info.first_offset == offset
        assert not info.is_duplicate
        self._note_flush()

    def _note_flush(self) -> None:
        """Takes the log's word for what is flushed: that is what is put to the test."""
        recovery_point = int(self.log.recovery_point)
        if recovery_point > self.state.flushed_offset:
            self.state = replace(self.state, flushed_offset=recovery_point)
            self.undone = []

    def _note_start(self) -> None:
        self.state = replace(self.state, start_offset=int(self.log.log_start_offset))
        self.highest_start = max(self.highest_start, self.state.start_offset)

    def _raise_high_watermark(self) -> None:
        self.log.advance_high_watermark(self.log.log_end_offset)

    def _start_after_retention(self) -> int:
        return int(self.log.log_end_offset) if self.config.retention_bytes >= 0 else self.state.start_offset

    def _forget_lost_producers(self) -> None:
        """Sequences and transactions go on from what is left in the log."""
        self.highest_start = min(self.highest_start, int(self.log.log_end_offset))
        model = ModelProducers().replay(batches_of(self.log))
        for producer_id in self.sequences:
            producer = model.producers.get(producer_id)
            known = {entry.producer_id: entry for entry in self.log.active_producers()}.get(
                ProducerId(producer_id)
            )
            self.sequences[producer_id] = 0 if known is None else known.last_sequence + 1
            if known is not None and known.current_txn_start_offset >= 0:
                self.in_transaction.add(producer_id)
            else:
                self.in_transaction.discard(producer_id)
            if producer is not None and producer.last_offset >= self.log.log_start_offset:
                assert known is not None, "a producer whose batches are in the log is forgotten"

    # Crashes.

    def _inject(self) -> None:
        """Has one operation fail, not far from here."""
        error_number = self.rng.choice((errno.EIO, errno.ENOSPC, errno.EROFS))
        operation = self.rng.choice(("write", "sync", "rename", "truncate", "create", "remove"))
        self.fs.inject(ROOT, error_number, operations=(operation,), remaining=1, skip=self.rng.randrange(4))

    def _reopen_after_failure(self) -> None:
        """The disk is well again; the process goes on, and opens the log once more."""
        self.steps.append(FAILED)
        self.fs.faults.clear()
        self.fs.crash_after(1 << 60)
        self.log.close()
        self._crash()

    def _crash(self) -> None:
        is_failure = self.steps[-1] == FAILED
        is_kill = is_failure or self.rng.random() < 0.3
        is_in_step = self.steps[-1] in (CRASHED, FAILED)
        if not is_failure:
            self.steps.append("kill" if is_kill else "power cut")
            self.fs = self.fs.kill() if is_kill else self.fs.crash(self.rng)
        self.scheduler = DeferredScheduler()
        for _ in range(3):
            if self.rng.random() < 0.15:
                self.fs.crash_after(self.rng.randrange(8))
            try:
                self._open_and_checkpoint()
                break
            except SimulatedCrash:
                self.steps.append("power cut while opening")
                is_kill = False
                self.fs = self.fs.crash(self.rng)
        else:
            self._open_and_checkpoint()
        self.fs.crash_after(1 << 60)
        found = batches_of(self.log)
        explained = [self.state, *([self.previous] if is_in_step else [])]
        if is_kill:
            self.undone += explained if is_in_step else []
        else:
            explained += self.undone
            self.undone = []
        if is_kill:
            assert any(state.is_exactly(found) for state in explained) or is_in_step, (
                f"a kill lost something: {self._difference(found)}"
            )
        assert any(state.explains(found) for state in explained), self._difference(found)
        end_offset = int(self.log.log_end_offset)
        # A power cut leaves nothing that another one could take; a kill leaves what was not flushed at risk.
        flushed_offset = min(self.state.flushed_offset, end_offset) if is_kill else end_offset
        self.state = ModelState(tuple(found), int(self.log.log_start_offset), end_offset, flushed_offset)
        self.previous = self.state
        self._check(found)
        self._forget_lost_producers()
        self.epoch += 1

    def _open_and_checkpoint(self) -> None:
        # A log that has lost its end must not be taken for flushed where it is written anew.
        self.log = self._open(clean_shutdown=False)
        self.checkpoint()

    def _open(self, *, clean_shutdown: bool) -> PartitionLog:
        return PartitionLog.open(
            DIRECTORY,
            environment=LogEnvironment(fs=self.fs, clock=self.clock, scheduler=self.scheduler),
            config=self.config,
            prior=PriorState(
                recovery_point=self._checkpointed(RECOVERY_POINT_CHECKPOINT),
                log_start_offset=self._checkpointed(LOG_START_OFFSET_CHECKPOINT),
                clean_shutdown=clean_shutdown,
                is_gapless=not self.is_cleaned,
            ),
        )

    def _checkpointed(self, name: str) -> Offset:
        return read_offsets(self.fs, f"{ROOT}/{name}").get(PARTITION, Offset(0))

    def _difference(self, found: list[ModelBatch]) -> str:
        def offsets(batches: list[ModelBatch] | tuple[ModelBatch, ...]) -> list[tuple[int, int]]:
            return [(batch.base_offset, batch.last_offset) for batch in batches]

        return (
            f"found {offsets(found)} but expected {offsets(self.state.batches)}, start {self.state.start_offset},"
            f" flushed {self.state.flushed_offset}, previously {offsets(self.previous.batches)}, flushed"
            f" {self.previous.flushed_offset}"
        )

    # What holds at any time.

    def _check(self, found: list[ModelBatch]) -> None:
        self._check_indexes()
        self._check_reads(found)
        self._check_epochs(found)
        self._check_producers(found)

    def _check_indexes(self) -> None:
        for segment in self.log.segments.all:
            batches = dict(segment.batches())
            # A segment whose deletion had begun may come back without its time index.
            if batches and max(h.last_offset for h in batches.values()) >= self.highest_start:
                assert segment.max_timestamp == max(h.max_timestamp for h in batches.values()), segment
            for entry in segment.offset_index.entries():
                assert batches[entry.position].last_offset == entry.offset, (segment, entry)
            for time_entry in segment.time_index.entries():
                before = [h for h in batches.values() if h.last_offset <= time_entry.offset]
                assert max(h.max_timestamp for h in before) == time_entry.timestamp, (segment, time_entry)

    def _check_reads(self, found: list[ModelBatch]) -> None:
        log = self.log
        self._raise_high_watermark()
        start, end = int(log.log_start_offset), int(log.log_end_offset)
        if found:
            assert end >= found[-1].last_offset + 1
            assert self.is_cleaned or end == found[-1].last_offset + 1
        for offset in {start, end, *(self.rng.randint(start, end) for _ in range(5))}:
            expected = next((batch for batch in found if batch.last_offset >= offset), None)
            result = log.read(offset, 1, Isolation.HIGH_WATERMARK, min_one_message=True)
            if expected is None:
                assert result.records is None, offset
            else:
                assert result.records is not None, offset
                assert result.records.read() == expected.data, offset
        if found:
            target = self.rng.choice(found).header().max_timestamp
            answer = log.offset_for_timestamp(target)
            assert (None if answer is None else answer.offset) == self._first_offset_at(target), target

    def _first_offset_at(self, timestamp: int) -> int | None:
        """As Kafka searches: only in the first segment that has a timestamp as large."""
        for segment in self.log.segments.all:
            batches = list(segment.whole_batches())
            if segment.largest_timestamp < timestamp:
                continue
            for _, header, data, at in batches:
                for record in decode_batch(data, at, header=header):
                    if record.timestamp >= timestamp and record.offset >= self.log.log_start_offset:
                        return int(record.offset)
            return None
        return None

    def _check_epochs(self, found: list[ModelBatch]) -> None:
        epochs = self.log.leader_epochs
        start_offset = max(self.highest_start, int(self.log.log_start_offset))
        for batch in found:
            if batch.last_offset < start_offset:
                continue
            begun = [
                entry.epoch for entry in epochs if entry.start_offset <= max(batch.base_offset, start_offset)
            ]
            assert begun, (batch.base_offset, epochs)
            assert begun[-1] == batch.header().partition_leader_epoch, (batch.base_offset, epochs)

    def _check_producers(self, found: list[ModelBatch]) -> None:
        log = self.log
        model = ModelProducers().replay(found)
        entries = {int(entry.producer_id): entry for entry in log.active_producers()}
        for producer_id, producer in model.producers.items():
            if producer.last_offset < log.log_start_offset:
                continue
            entry = entries[producer_id]
            assert entry.producer_epoch == producer.epoch
            assert (entry.last_sequence, entry.last_offset) == (producer.last_sequence, producer.last_offset)
            if producer.txn_first_offset > max(found[0].base_offset, log.log_start_offset):
                # It may have begun in what has been deleted.
                assert 0 <= entry.current_txn_start_offset <= producer.txn_first_offset
        first_open = model.first_open_offset
        if first_open is not None and found and first_open > max(found[0].base_offset, log.log_start_offset):
            assert log.last_stable_offset <= first_open
        first_offset = max(found[0].base_offset, int(log.log_start_offset)) if found else 0
        indexed = {
            (int(each.producer_id), int(each.last_offset)): int(each.first_offset)
            for each in log.aborted_transactions(log.log_start_offset, log.log_end_offset)
        }
        for producer_id, txn_first_offset, marker_offset in model.aborted:
            if txn_first_offset > first_offset:
                assert indexed.get((producer_id, marker_offset), 1 << 62) <= txn_first_offset, (
                    f"the abort at offset {marker_offset} is not in the indexes, which have {indexed}"
                )


STEPS: Final[dict[Callable[[History], None], float]] = {
    History.append: 10,
    History.append_idempotent: 4,
    History.append_transactional: 4,
    History.end_transaction: 4,
    History.append_as_follower: 5,
    History.new_epoch: 1,
    History.flush: 4,
    History.roll: 2,
    History.run_scheduled: 5,
    History.delete_old_segments: 1.5,
    History.delete_records: 1,
    History.truncate: 2,
    History.truncate_fully: 0.3,
    History.clean: 3,
    History.checkpoint: 2,
    History.crash: 3,
    History.stop_and_start: 1,
}
