"""Which log is cleaned next, and who may touch it meanwhile.

The cleaner and whoever truncates, moves, deletes or retains a log exclude each other: the cleaning of a log can be
stopped, and a log that is paused is not chosen. How far each log is clean stands in the cleaner-offset-checkpoint of
its directory. A log that cannot be cleaned, since its bytes are damaged, is passed over until the next start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from barnabas.clock import Clock
from barnabas.errors import KafkaError, KafkaStorageError
from barnabas.log import names
from barnabas.log.cleaner.cleaner import Cleaned, Cleaner, CleaningAborted, OnBytes
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import StorageFailure
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition
from barnabas.primitives.unhurried import unhurried

logger = logging.getLogger(__name__)

PAUSE_TIMEOUT_S: Final = 300

_IN_PROGRESS: Final = -1
_ABORTED: Final = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
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
    # What is not decided, or still written to, or too young, is left alone.
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
            "%s is said to be clean up to %d but ends at %d: all of it is taken for dirty",
            log.topic_partition,
            checkpoint,
            log.log_end_offset,
        )
        return log.log_start_offset
    return checkpoint


def _is_overdue(log: PartitionLog, first_timestamps: Iterable[int | None], now_ms: int) -> bool:
    known = [timestamp for timestamp in first_timestamps if timestamp is not None and timestamp > 0]
    return bool(known) and min(known) < now_ms - max(log.config.max_compaction_lag_ms, 0)


class CleanerManager:
    """Chooses logs among those that `logs` tells of, each with its directory."""

    def __init__(
        self,
        clock: Clock,
        logs: Callable[[], Mapping[TopicPartition, tuple[LogDirectory, PartitionLog]]],
    ) -> None:
        self._clock = clock
        self._logs = logs
        # Positive numbers count those who have paused a log.
        self._states: dict[TopicPartition, int] = {}
        self._uncleanable: set[TopicPartition] = set()
        self._changed = threading.Condition()

    def clean_next(self, cleaner: Cleaner, on_bytes: OnBytes = lambda _: None) -> Cleaned | None:
        """Cleans the dirtiest log that is due; None if none is. `on_bytes` may slow the cleaner down, or stop it."""
        chosen = self._choose()
        if chosen is None:
            return None
        directory, target = chosen
        partition = target.log.topic_partition
        end_offset: int | None = None
        try:
            cleaned = cleaner.clean(
                target.log,
                target.first_dirty_offset,
                target.end_offset,
                partial(self._advance, partition, on_bytes),
            )
            end_offset = cleaned.end_offset
            logger.info(
                "cleaned %s from %d to %d: %d of %d records and %d of %d bytes stay, in %d ms",
                partition,
                target.first_dirty_offset,
                cleaned.end_offset,
                cleaned.written_records,
                cleaned.read_records,
                cleaned.written_bytes,
                cleaned.read_bytes,
                cleaned.duration_ms,
            )
            return cleaned
        except CleaningAborted:
            logger.info("the cleaning of %s was stopped", partition)
            return None
        except StorageFailure as failure:
            directory.fail(failure)
            return None
        except KafkaStorageError as error:
            logger.info("the cleaning of %s ended: %s", partition, error)
            return None
        except Exception as error:
            # Damaged bytes, most likely. Other logs can be cleaned all the same.
            logger.error("%s cannot be cleaned", partition, exc_info=error)
            self._uncleanable.add(partition)
            return None
        finally:
            self._finish(directory, partition, end_offset)

    def _advance(self, partition: TopicPartition, on_bytes: OnBytes, size_bytes: int) -> None:
        if self._states.get(partition) == _ABORTED:
            raise CleaningAborted(str(partition))
        on_bytes(size_bytes)

    @contextmanager
    def paused(self, partition: TopicPartition) -> Iterator[None]:
        """Keeps the cleaner off a log; a cleaning that is under way is stopped first."""
        self.pause(partition)
        try:
            yield
        finally:
            self.resume(partition)

    def pause(self, partition: TopicPartition) -> None:
        with self._changed:
            if self._states.get(partition) in (_IN_PROGRESS, _ABORTED):
                self._states[partition] = _ABORTED
                # The cleaner looks after every batch.
                if not self._changed.wait_for(lambda: partition not in self._states, PAUSE_TIMEOUT_S):
                    raise KafkaStorageError(
                        f"the cleaner has not let go of {partition} in {PAUSE_TIMEOUT_S} s"
                    )
            self._states[partition] = self._states.get(partition, 0) + 1

    def try_pause(self, partition: TopicPartition) -> bool:
        """As pause, but a log that is being cleaned is left to the cleaner: false."""
        with self._changed:
            state = self._states.get(partition, 0)
            if state < 0:
                return False
            self._states[partition] = state + 1
            return True

    def resume(self, partition: TopicPartition) -> None:
        with self._changed:
            count = self._states[partition]
            assert count > 0, partition
            if count == 1:
                del self._states[partition]
            else:
                self._states[partition] = count - 1
            self._changed.notify_all()

    def update_checkpoint(self, directory: LogDirectory, partition: TopicPartition, offset: int) -> None:
        """Notes how far a log is clean."""
        with self._changed:
            offsets = directory.read_checkpoint(names.CLEANER_OFFSET_CHECKPOINT)
            directory.write_checkpoint(names.CLEANER_OFFSET_CHECKPOINT, {**offsets, partition: offset})

    def forget_checkpoints(self, directory: LogDirectory, partitions: Collection[TopicPartition]) -> None:
        """For logs that are deleted: others may come in their place."""
        with self._changed:
            self._uncleanable.difference_update(partitions)
            offsets = directory.read_checkpoint(names.CLEANER_OFFSET_CHECKPOINT)
            gone = offsets.keys() & set(partitions)
            if gone:
                kept = {partition: offset for partition, offset in offsets.items() if partition not in gone}
                directory.write_checkpoint(names.CLEANER_OFFSET_CHECKPOINT, kept)

    def truncate_checkpoint(self, directory: LogDirectory, partition: TopicPartition, offset: int) -> None:
        """After a truncation a log is clean up to the offset at most."""
        known = directory.read_checkpoint(names.CLEANER_OFFSET_CHECKPOINT).get(partition)
        if known is not None and known > offset:
            self.update_checkpoint(directory, partition, offset)

    def move_checkpoint(self, source: LogDirectory, target: LogDirectory, partition: TopicPartition) -> None:
        known = source.read_checkpoint(names.CLEANER_OFFSET_CHECKPOINT).get(partition)
        if known is not None:
            self.update_checkpoint(target, partition, known)
            if not source.is_offline:
                self.forget_checkpoints(source, [partition])

    def _choose(self) -> tuple[LogDirectory, LogToClean] | None:
        now_ms = self._clock.now_ms()
        with self._changed:
            checkpoints: dict[str, dict[TopicPartition, int]] = {}
            best: tuple[LogDirectory, LogToClean] | None = None
            for partition, (directory, log) in unhurried(self._logs().items()):
                config = log.config
                if not config.compact or config.barnabas_deletion_hold:
                    continue
                if partition in self._states or partition in self._uncleanable:
                    continue
                try:
                    if directory.path not in checkpoints:
                        checkpoints[directory.path] = dict(
                            directory.read_checkpoint(names.CLEANER_OFFSET_CHECKPOINT)
                        )
                    candidate = log_to_clean(log, checkpoints[directory.path].get(partition), now_ms)
                except KafkaStorageError as error:
                    logger.error("%s is not cleaned: %s", partition, error)
                    continue
                except KafkaError as error:
                    logger.error("%s cannot be cleaned: %s", partition, error)
                    self._uncleanable.add(partition)
                    continue
                if candidate.is_due and (best is None or candidate.dirty_ratio > best[1].dirty_ratio):
                    best = (directory, candidate)
            if best is not None:
                self._states[best[1].log.topic_partition] = _IN_PROGRESS
            return best

    def _finish(self, directory: LogDirectory, partition: TopicPartition, end_offset: int | None) -> None:
        with self._changed:
            try:
                if end_offset is not None and not directory.is_offline:
                    self.update_checkpoint(directory, partition, end_offset)
            except KafkaStorageError as error:
                directory.fail(error)
            finally:
                del self._states[partition]
                self._changed.notify_all()
