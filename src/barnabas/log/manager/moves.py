"""Moves a partition to another log directory.

A second log, `…-future`, is created there. It catches up with the first log and takes its place.
"""

from __future__ import annotations

import uuid
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.log import names
from barnabas.log.cleaner.manager import CleanerManager
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import StorageFailure
from barnabas.log.manager.directories import LogDirectories
from barnabas.log.manager.followers import FollowerLogs
from barnabas.log.manager.offset_checkpoints import OffsetCheckpoints
from barnabas.log.manager.open_logs import OpenLogs
from barnabas.log.manager.opener import NEW_LOG, LogOpener
from barnabas.log.manager.removal import LogRemoval, deletion_name
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.model import TopicPartition
from barnabas.value import replace

COPY_BYTES: Final = 1 << 20


class LogMoves:
    """Threads: any thread calls. `OpenLogs.changing` is held while logs come and go, not while records are copied."""

    def __init__(
        self,
        directories: LogDirectories,
        logs: OpenLogs,
        opener: LogOpener,
        cleaner: CleanerManager,
        checkpoints: OffsetCheckpoints,
        removal: LogRemoval,
        followers: FollowerLogs,
    ) -> None:
        self._directories = directories
        self._logs = logs
        self._opener = opener
        self._cleaner = cleaner
        self._checkpoints = checkpoints
        self._removal = removal
        self._followers = followers

    def create_future(self, partition: TopicPartition, directory: str) -> PartitionLog:
        """A second log for the partition, in the directory that it moves to."""
        with self._logs.changing:
            return self._create_future(partition, self._directories.at(directory))

    def _create_future(self, partition: TopicPartition, target: LogDirectory) -> PartitionLog:
        source = self._logs.required(partition)
        if target.is_offline:
            raise KafkaStorageError(f"{target.path} is offline")
        assert self._directories.of(source) is not target, (partition, target)
        existing = self._logs.find(partition, is_future=True)
        if existing is not None:
            if self._directories.of(existing) is target:
                return existing
            for failure in self._removal.delete_all([partition], is_future=True).values():
                raise failure
        name = names.marked_partition_dir(partition, uuid.uuid4().hex, names.FUTURE_DIR_SUFFIX)
        try:
            # Records of a compacted log have gaps between them.
            log = self._opener.open(target, name, replace(NEW_LOG, is_gapless=False), source.topic_id)
            # After a crash the move continues.
            target.fs.sync_dir(target.path)
            if source.log_start_offset > 0:
                log.truncate_fully_and_start_at(source.log_start_offset)
        except StorageFailure as failure:
            target.fail(failure)
            raise
        self._logs.add(log, is_future=True)
        return log

    def copy_to_future(self, partition: TopicPartition) -> bool:
        """Copies the next records to the future log; true when it has all of them."""
        source, future = self._both(partition)
        if future.log_end_offset < source.log_start_offset:
            self._followers.truncate_fully_and_start_at(partition, source.log_start_offset, is_future=True)
        # The segments of the future log may be smaller than those of the source.
        max_bytes = min(COPY_BYTES, future.config.segment_bytes)
        result = source.read(future.log_end_offset, max_bytes, Isolation.LOG_END, min_one_message=True)
        if result.records is not None:
            self._followers.append(partition, result.records.read(), is_future=True)
        # Also if nothing was copied: after a crash the future log has lost its high watermark.
        future.advance_high_watermark(min(source.high_watermark, future.log_end_offset))
        return future.log_end_offset >= source.log_end_offset

    def replace_with_future(self, partition: TopicPartition) -> PartitionLog:
        """The future log, which has caught up, takes the place of the current one, which is deleted."""
        with self._logs.changing:
            return self._replace_with_future(partition)

    def _replace_with_future(self, partition: TopicPartition) -> PartitionLog:
        source, future = self._both(partition)
        with self._cleaner.exclusion.paused(partition):
            future.flush()
            source_directory, target_directory = self._directories.of(source), self._directories.of(future)
            # The old log goes first: of two a person would have to choose, and the next start finds a future log alone.
            source.rename_dir(deletion_name(partition))
            try:
                future.rename_dir(names.partition_dir(partition))
            except KafkaStorageError:
                source.rename_dir(names.partition_dir(partition))
                raise
            future.update_high_watermark(source.high_watermark)
            del self._logs.future[partition]
            self._logs.current[partition] = future
            target_directory.note(target_directory.register.add, [partition])
            source_directory.note(source_directory.register.remove, [partition])
            self._cleaner.offsets.move(source_directory, target_directory, partition)
            self._removal.remove_later([(source.directory, source)])
        for directory in (target_directory, source_directory):
            self._checkpoints.forget_removed(directory)
        return future

    def _both(self, partition: TopicPartition) -> tuple[PartitionLog, PartitionLog]:
        return self._logs.required(partition), self._logs.required(partition, is_future=True)
