"""Deletes logs, in two steps.

The partition's directory is renamed to `…-delete` at once, so that a topic of the same name can be created again. It is
removed after `file.delete.delay.ms`, when readers are done with it.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from functools import partial

from barnabas.errors import KafkaStorageError
from barnabas.log import names
from barnabas.log.cleaner.manager import CleanerManager
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import StorageFailure
from barnabas.log.manager.directories import LogDirectories
from barnabas.log.manager.offset_checkpoints import OffsetCheckpoints
from barnabas.log.manager.open_logs import OpenLogs
from barnabas.log.manager.opener import LogOpener
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition

logger = logging.getLogger(__name__)

MarkedLog = tuple[str, PartitionLog | None]
"""The path of a directory that is marked for deletion, and its log if it was open."""


def deletion_name(partition: TopicPartition) -> str:
    return _marked(partition, names.DELETE_DIR_SUFFIX)


def _marked(partition: TopicPartition, mark: str) -> str:
    return names.marked_partition_dir(partition, uuid.uuid4().hex, mark)


class LogRemoval:
    """Threads: any thread deletes, and holds `OpenLogs.changing`. The scheduler removes the directories."""

    def __init__(
        self,
        environment: LogEnvironment,
        directories: LogDirectories,
        logs: OpenLogs,
        opener: LogOpener,
        cleaner: CleanerManager,
        checkpoints: OffsetCheckpoints,
    ) -> None:
        self._fs = environment.fs
        self._scheduler = environment.scheduler
        self._directories = directories
        self._logs = logs
        self._opener = opener
        self._cleaner = cleaner
        self._checkpoints = checkpoints
        self._is_stopped = False

    def stop(self) -> None:
        """From now on nothing is removed: the next start does it."""
        self._is_stopped = True

    def delete_all(
        self, partitions: Iterable[TopicPartition], *, is_future: bool = False
    ) -> dict[TopicPartition, KafkaStorageError]:
        """Marks logs for deletion, and syncs once for all of them. Returns why some of them cannot be deleted."""
        logs = self._logs.of_kind(is_future)
        marked: dict[LogDirectory, list[PartitionLog]] = {}
        failures: dict[TopicPartition, KafkaStorageError] = {}
        with self._logs.changing:
            for partition in partitions:
                try:
                    log = logs.pop(partition, None)
                    if log is None:
                        if not is_future:
                            self._delete_closed(partition)
                        continue
                    directory = self._directories.of(log)
                    with self._cleaner.exclusion.paused(partition):
                        log.rename_dir(deletion_name(partition), syncs=False)
                    marked.setdefault(directory, []).append(log)
                except KafkaStorageError as error:
                    failures[partition] = error
            for directory, deleted in marked.items():
                deleted_partitions = [log.topic_partition for log in deleted]
                try:
                    self._settle(directory, deleted, is_future)
                except StorageFailure as error:
                    directory.fail(error)
                    failures.update(dict.fromkeys(deleted_partitions, error))
                    continue
                if not is_future:
                    self._logs.note_deleted(deleted_partitions)
        return failures

    def _delete_closed(self, partition: TopicPartition) -> None:
        """Deletes a log that is not open, if it exists. One that was deleted before is in no directory at all."""
        if self._delete_unopened(partition) or self._forget(partition):
            self._logs.note_deleted([partition])
        elif partition not in self._logs.deleted:
            self._directories.check_complete(partition)

    def set_aside(self, log: PartitionLog) -> None:
        """Takes a log out of use and marks its directory as a stray, which stays for people to look at."""
        partition = log.topic_partition
        directory = self._directories.of(log)
        path = log.directory
        try:
            with self._cleaner.exclusion.paused(partition):
                log.rename_dir(_marked(partition, names.STRAY_DIR_SUFFIX), syncs=False)
            self._logs.of_kind(is_future=False).pop(partition)
            self._forget_marked(directory, [partition])
        except StorageFailure as failure:
            directory.fail(failure)
            raise
        log.close()
        logger.warning(
            "%s holds records of an earlier topic of this name, and is %s now: remove it if nobody needs it",
            *(path, log.directory),
        )

    def _settle(self, directory: LogDirectory, logs: Sequence[PartitionLog], is_future: bool) -> None:
        self._forget_marked(directory, [] if is_future else [log.topic_partition for log in logs])
        self.remove_later([(log.directory, log) for log in logs])

    def _forget_marked(self, directory: LogDirectory, partitions: Sequence[TopicPartition]) -> None:
        """The directories have other names now: nothing that is kept beside them names these partitions."""
        self._fs.sync_dir(directory.path)
        if partitions:
            directory.register.remove(partitions)
            self._cleaner.forget(directory, partitions)
        self._checkpoints.forget_removed(directory)

    def _delete_unopened(self, partition: TopicPartition) -> bool:
        """Marks a log for deletion that could not be opened; false if the partition has none."""
        path = self._logs.unopened.get(partition)
        if path is None:
            return False
        directory = self._directories.above(path)
        if directory.is_offline:
            return False
        name = deletion_name(partition)
        try:
            self._fs.rename(path, directory.file(name))
            self._fs.sync_dir(directory.path)
        except StorageFailure as failure:
            directory.fail(failure)
            raise
        del self._logs.unopened[partition]
        self._unregister(directory, partition)
        self.remove_later([(directory.file(name), None)])
        return True

    def _forget(self, partition: TopicPartition) -> bool:
        """Gives up a log that has vanished; false if the partition has none."""
        path = self._logs.lost.pop(partition, None)
        if path is None:
            return False
        directory = self._directories.above(path)
        self._fs.remove_tree(path)
        self._unregister(directory, partition)
        return True

    def _unregister(self, directory: LogDirectory, partition: TopicPartition) -> None:
        directory.note(directory.register.remove, [partition])
        self._checkpoints.forget_removed(directory)

    def remove_later(self, marked: Sequence[MarkedLog]) -> None:
        """Removes directories that are marked for deletion, with their logs if they were open."""
        if marked:
            delay_ms = self._opener.settings.file_delete_delay_ms
            self._scheduler.schedule("delete-log", partial(self._remove_all, marked), delay_ms)

    def _remove_all(self, marked: Sequence[MarkedLog]) -> None:
        for path, log in marked:
            self._remove(path, log)

    def _remove(self, path: str, log: PartitionLog | None) -> None:
        directory = self._directories.above(path)
        if directory.is_offline or self._is_stopped:
            return
        try:
            if log is None:
                self._fs.remove_tree(path)
            else:
                log.delete()
            logger.info("removed %s", path)
        except StorageFailure as failure:
            directory.fail(failure)
        except KafkaStorageError as error:
            logger.error("%s is not removed: %s", path, error)
