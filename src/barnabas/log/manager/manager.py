"""All logs of a broker, in all its log directories: made, moved, truncated, retained, flushed, deleted.

How they are opened and closed, and what becomes of a directory that fails, is told in open_logs.py.

A partition is deleted in two steps: its directory is renamed to `…-delete` at once, so that a topic of the same name
can be made again, and removed after `file.delete.delay.ms`, when readers have let go. It is moved to another directory
by a second log, `…-future`, which catches up with the first and takes its place.

Any thread may call; what is called reads and writes files, so it does not belong on an event loop.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.log import names
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import StorageFailure
from barnabas.log.manager.open_logs import OpenLogs, vanished
from barnabas.log.partition.append import UnexpectedAppendOffset
from barnabas.log.partition.environment import PriorState
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.model import TopicPartition
from barnabas.primitives.unhurried import unhurried

logger = logging.getLogger(__name__)

COPY_BYTES: Final = 1 << 20
NEW_LOG: Final = PriorState(clean_shutdown=True, lists_side_files=False, is_gapless=True)


class LogManager(OpenLogs):
    def get_or_create(
        self,
        partition: TopicPartition,
        topic_id: bytes | None,
        *,
        is_new: bool = False,
        directory: str | None = None,
    ) -> PartitionLog:
        """The partition's log; a new one is made in the given directory, else where there are fewest.

        A partition that is not new may be in a directory that is offline: then it is not made again elsewhere.
        """
        with self._changing:
            return self._get_or_create(partition, topic_id, is_new, directory)

    def _get_or_create(
        self, partition: TopicPartition, topic_id: bytes | None, is_new: bool, directory: str | None
    ) -> PartitionLog:
        existing = self._current.get(partition)
        if existing is not None:
            if topic_id is not None:
                existing.assign_topic_id(topic_id)
            return existing
        if partition in self._unopened:
            raise KafkaStorageError(
                f"{self._unopened[partition]} could not be opened when the broker was started, and holds the records"
                f" of {partition}"
            )
        lost_path = self._lost.get(partition)
        if lost_path is not None:
            if not (is_new or self._is_accepted(lost_path)):
                raise KafkaStorageError(vanished(lost_path))
            # An empty directory may still be there.
            directory = os.path.dirname(lost_path)
        elif not is_new:
            self._check_not_offline(partition)
        choices = self._emptiest_first() if directory is None else [self.directory(directory)]
        for choice in choices:
            try:
                log = self._open_log(choice, names.partition_dir(partition), NEW_LOG, topic_id)
                choice.register.add([partition])
            except StorageFailure as failure:
                choice.fail(failure)
                continue
            self._register(self._current, log)
            self._lost.pop(partition, None)
            return log
        raise KafkaStorageError(f"there is no log directory for {partition}: all are offline")

    def _emptiest_first(self) -> list[LogDirectory]:
        live = self.live_directories()
        if len(live) == 1:
            return live
        counts = Counter(map(self.directory_of, self.logs()))
        return sorted(live, key=lambda directory: counts[directory])

    def create_future(self, partition: TopicPartition, directory: str) -> PartitionLog:
        """A second log for the partition, in the directory that it is to move to."""
        with self._changing:
            return self._create_future(partition, self.directory(directory))

    def _unique_id(self) -> str:
        """For the name of a directory that moves or goes; 32 characters, as Kafka's."""
        return f"{self._environment.rng.getrandbits(128):032x}"

    def _create_future(self, partition: TopicPartition, target: LogDirectory) -> PartitionLog:
        source = self._required(partition)
        if target.is_offline:
            raise KafkaStorageError(f"{target.path} is offline")
        assert self.directory_of(source) is not target, (partition, target)
        existing = self._future.get(partition)
        if existing is not None:
            if self.directory_of(existing) is target:
                return existing
            self.delete(partition, is_future=True)
        name = names.marked_partition_dir(partition, self._unique_id(), names.FUTURE_DIR_SUFFIX)
        try:
            log = self._open_log(target, name, replace(NEW_LOG, is_gapless=False), source.topic_id)
            # After a crash the move goes on.
            self._fs.sync_dir(target.path)
            if source.log_start_offset > 0:
                log.truncate_fully_and_start_at(source.log_start_offset)
        except StorageFailure as failure:
            target.fail(failure)
            raise
        self._register(self._future, log)
        return log

    def copy_to_future(self, partition: TopicPartition) -> bool:
        """Copies the next records to the future log; true when it has all of them."""
        source, future = self._required(partition), self._required(partition, is_future=True)
        if future.log_end_offset < source.log_start_offset:
            future.truncate_fully_and_start_at(source.log_start_offset)
        # Segments may have become smaller than those that the source has.
        max_bytes = min(COPY_BYTES, future.config.segment_bytes)
        result = source.read(future.log_end_offset, max_bytes, Isolation.LOG_END, min_one_message=True)
        if result.records is not None:
            _append_copied(future, result.records.read())
        # Also where nothing was copied: a copy that a crash has left forgets how far it was.
        future.advance_high_watermark(min(source.high_watermark, future.log_end_offset))
        return future.log_end_offset >= source.log_end_offset

    def replace_with_future(self, partition: TopicPartition) -> PartitionLog:
        """The future log, which has caught up, takes the place of the current one, which is deleted."""
        with self._changing:
            return self._replace_with_future(partition)

    def _replace_with_future(self, partition: TopicPartition) -> PartitionLog:
        source, future = self._required(partition), self._required(partition, is_future=True)
        with self.cleaner.paused(partition):
            future.flush()
            source_directory, target_directory = self.directory_of(source), self.directory_of(future)
            # The old log goes first: of two a person would have to choose, and a copy alone is found by `_promote`.
            source.rename_dir(
                names.marked_partition_dir(partition, self._unique_id(), names.DELETE_DIR_SUFFIX)
            )
            try:
                future.rename_dir(names.partition_dir(partition))
            except KafkaStorageError:
                source.rename_dir(names.partition_dir(partition))
                raise
            future.update_high_watermark(source.high_watermark)
            del self._future[partition]
            self._current[partition] = future
            target_directory.note(target_directory.register.add, [partition])
            source_directory.note(source_directory.register.remove, [partition])
            self.cleaner.move_checkpoint(source_directory, target_directory, partition)
            self._remove_later([(source.directory, source)])
        for directory in (target_directory, source_directory):
            self.checkpoint(directory)
        return future

    def delete(self, partition: TopicPartition, *, is_future: bool = False) -> None:
        """Marks the log for deletion; it is gone at once, and its files after a while."""
        self.delete_all([partition], is_future=is_future)

    def delete_all(self, partitions: Iterable[TopicPartition], *, is_future: bool = False) -> None:
        """As `delete`; what it takes to be sure of it is done once for all of them.

        One that cannot be deleted is in nobody's way; why it cannot is raised in the end.
        """
        registry = self._future if is_future else self._current
        marked: dict[LogDirectory, list[PartitionLog]] = {}
        failure: KafkaStorageError | None = None
        with self._changing:
            for partition in partitions:
                try:
                    log = registry.pop(partition, None)
                    if log is None:
                        if is_future or not (self._delete_unopened(partition) or self._forget(partition)):
                            self._check_not_offline(partition)
                        continue
                    directory = self.directory_of(log)
                    name = names.marked_partition_dir(partition, self._unique_id(), names.DELETE_DIR_SUFFIX)
                    with self.cleaner.paused(partition):
                        log.rename_dir(name, syncs=False)
                    marked.setdefault(directory, []).append(log)
                except KafkaStorageError as error:
                    failure = error
            for directory, logs in marked.items():
                try:
                    self._settle_deletion(directory, logs, is_future)
                except StorageFailure as error:
                    directory.fail(error)
                    failure = error
        if failure is not None:
            raise failure

    def _delete_unopened(self, partition: TopicPartition) -> bool:
        """Marks a log for deletion that could not be opened; false if the partition has none."""
        path = self._unopened.get(partition)
        if path is None:
            return False
        directory = self._by_path[os.path.dirname(path)]
        if directory.is_offline:
            return False
        name = names.marked_partition_dir(partition, self._unique_id(), names.DELETE_DIR_SUFFIX)
        try:
            self._fs.rename(path, directory.file(name))
            self._fs.sync_dir(directory.path)
        except StorageFailure as failure:
            directory.fail(failure)
            raise
        del self._unopened[partition]
        directory.note(directory.register.remove, [partition])
        self._remove_later([(directory.file(name), None)])
        return True

    def _forget(self, partition: TopicPartition) -> bool:
        """Gives up a log that has vanished; false if the partition has none."""
        path = self._lost.pop(partition, None)
        if path is None:
            return False
        directory = self._by_path[os.path.dirname(path)]
        self._fs.remove_tree(path)
        directory.note(directory.register.remove, [partition])
        return True

    def _check_not_offline(self, partition: TopicPartition) -> None:
        offline = [directory.path for directory in self.directories if directory.is_offline]
        if offline:
            raise KafkaStorageError(f"{partition} may be in {', '.join(offline)}, which is offline")
        unnamed = self.unnamed_directories
        if unnamed:
            raise KafkaStorageError(
                f"{partition} may be in {', '.join(unnamed)}, which was in use before and is not in log.dirs now. Add"
                " it again, or, if its records are lost for good, start once with --override"
                f" barnabas.accept.loss={','.join(unnamed)}"
            )

    def _settle_deletion(
        self, directory: LogDirectory, logs: Sequence[PartitionLog], is_future: bool
    ) -> None:
        self._fs.sync_dir(directory.path)
        if not is_future:
            partitions = [log.topic_partition for log in logs]
            directory.register.remove(partitions)
            self.cleaner.forget_checkpoints(directory, partitions)
        self.checkpoint(directory)
        self._remove_later([(log.directory, log) for log in logs])

    def truncate_to(self, partition: TopicPartition, offset: int, *, is_future: bool = False) -> bool:
        log = self._required(partition, is_future=is_future)
        with self.cleaner.paused(partition):
            if not log.truncate_to(offset):
                return False
            self._settle_truncation(log, is_future)
        return True

    def truncate_fully_and_start_at(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        is_future: bool = False,
    ) -> None:
        log = self._required(partition, is_future=is_future)
        with self.cleaner.paused(partition):
            log.truncate_fully_and_start_at(offset)
            self._settle_truncation(log, is_future)

    def _settle_truncation(self, log: PartitionLog, is_future: bool) -> None:
        """The recovery point may have gone back: that must be on the disk before anything is appended."""
        directory = self.directory_of(log)
        if not is_future:
            self.cleaner.truncate_checkpoint(directory, log.topic_partition, log.segments.active.base_offset)
        self.checkpoint(directory)

    def update_config(self, topic: str) -> None:
        """Has the topic's logs follow its settings as they are now."""
        config = self._config_of(topic)
        for log in unhurried(self.logs()):
            if log.topic_partition.topic == topic:
                log.update_config(config)

    def retain(self) -> int:
        """Deletes the segments that retention lets go of; how many."""
        count = 0
        for log in unhurried(self.logs(), 8):
            partition = log.topic_partition
            if self.cleaner.try_pause(partition):
                try:
                    count += log.delete_old_segments()
                except KafkaStorageError as error:
                    logger.error("retention of %s: %s", partition, error)
                finally:
                    self.cleaner.resume(partition)
        return count

    def flush_overdue(self) -> None:
        """Flushes the logs that were last flushed over `flush.ms` ago."""
        now_ms = self._clock.now_ms()
        for log in unhurried(self.logs()):
            if now_ms - log.last_flush_ms >= log.config.flush_ms:
                try:
                    log.flush()
                except KafkaStorageError as error:
                    logger.error("flushing %s: %s", log.topic_partition, error)

    def expire_producers(self) -> None:
        for log in unhurried(self.logs(), 8):
            try:
                log.remove_expired_producers()
            except KafkaStorageError as error:
                logger.error("expiring producers of %s: %s", log.topic_partition, error)


def _append_copied(future: PartitionLog, records: bytes) -> None:
    try:
        future.append_as_follower(records)
    except UnexpectedAppendOffset as unexpected:
        # Records may be deleted up to the middle of a batch, which is copied as a whole.
        is_empty = future.log_end_offset == future.log_start_offset
        if not is_empty or not unexpected.first_offset < future.log_end_offset <= unexpected.last_offset:
            raise
        future.truncate_fully_and_start_at(unexpected.first_offset)
        future.append_as_follower(records)
