"""The logs of a broker that are open, and the partitions whose log cannot be used."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import NoSuchFile, StorageFailure, storage_failure
from barnabas.log.manager.directories import LogDirectories
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition
from barnabas.primitives.unhurried import unhurried

logger = logging.getLogger(__name__)

# A controller asks again for deletions whose answer it has not got, and that is soon.
DELETED_MAX: Final = 10_000

OnOffline = Callable[[LogDirectory, list[TopicPartition]], None]


class DuplicateLog(KafkaStorageError):
    """A partition has a log in two directories: a failing disk interrupted a move. A person must choose."""


def vanished(path: str) -> str:
    return (
        f"the log {path} has vanished, or has no segment any more: its partition is offline. Put the directory back and"
        " start again. If its records are lost for good, start once with --override"
        f" barnabas.accept.loss={path}"
    )


class OpenLogs:
    """Owns which log belongs to which partition; a partition that moves to another directory also has a future log.

    Threads: any thread looks a log up. `changing` is held while logs are created, moved and deleted, which takes time.
    A log that fails reports with its own lock held, so that `take_offline` takes no lock at all.
    """

    def __init__(self, directories: LogDirectories, on_offline: OnOffline) -> None:
        """`on_offline` is called in whichever thread met the failure."""
        self.changing = threading.RLock()
        self.current: dict[TopicPartition, PartitionLog] = {}
        self.future: dict[TopicPartition, PartitionLog] = {}
        # Where the logs lie that could not be opened: their partitions get no other log.
        self.unopened: dict[TopicPartition, str] = {}
        # Where the logs were that have vanished: they are not created again, empty, without a person's consent.
        self.lost: dict[TopicPartition, str] = {}
        # The latest partitions whose logs were deleted, oldest first: no directory that is offline has them.
        self.deleted: dict[TopicPartition, None] = {}
        self._directories = directories
        self._on_offline = on_offline

    def find(self, partition: TopicPartition, *, is_future: bool = False) -> PartitionLog | None:
        return self.of_kind(is_future).get(partition)

    def required(self, partition: TopicPartition, *, is_future: bool = False) -> PartitionLog:
        log = self.find(partition, is_future=is_future)
        if log is None:
            raise KafkaStorageError(f"there is no {'future ' if is_future else ''}log of {partition}")
        return log

    def all(self) -> list[PartitionLog]:
        """The logs of all partitions, future logs included."""
        return [*self.current.values(), *self.future.values()]

    def of_kind(self, is_future: bool) -> dict[TopicPartition, PartitionLog]:
        return self.future if is_future else self.current

    def in_directory(self, directory: LogDirectory) -> list[PartitionLog]:
        logs = self.all()
        if len(self._directories.all) == 1:
            return logs
        return [log for log in unhurried(logs) if self._directories.of(log) is directory]

    def with_directories(self) -> Mapping[TopicPartition, tuple[LogDirectory, PartitionLog]]:
        current = unhurried(list(self.current.items()))
        return {partition: (self._directories.of(log), log) for partition, log in current}

    def add(self, log: PartitionLog, *, is_future: bool = False) -> None:
        logs = self.of_kind(is_future)
        with self.changing:
            other = logs.get(log.topic_partition)
            if other is not None:
                raise DuplicateLog(
                    f"{log.topic_partition} is in {other.directory} and in {log.directory}. A directory has probably"
                    " failed while the partition was moved: remove the one that is out of date"
                )
            logs[log.topic_partition] = log
            self.deleted.pop(log.topic_partition, None)

    def note_deleted(self, partitions: Iterable[TopicPartition]) -> None:
        self.deleted.update(dict.fromkeys(partitions))
        for oldest in list(self.deleted)[: max(0, len(self.deleted) - DELETED_MAX)]:
            del self.deleted[oldest]

    def note_failure(
        self, directory: LogDirectory, partition: TopicPartition, failure: StorageFailure
    ) -> None:
        """A log has failed: its directory may be gone, or else the disk has failed. Takes no lock."""
        if not isinstance(failure, NoSuchFile) or not self._lose(directory, partition):
            directory.fail(failure)

    def find_vanished(self) -> None:
        """Takes the partitions offline whose directories are gone: files that are open keep working without a name."""
        for directory in self._directories.live():
            with self.changing:
                try:
                    present = set(directory.fs.list_dir(directory.path))
                except StorageFailure as failure:
                    directory.fail(failure)
                    continue
                logs = self.in_directory(directory)
                if logs and not present:
                    # Not even the lock is left.
                    directory.fail(storage_failure("find a file in", directory.path, errno.ENOENT))
                    continue
                for log in logs:
                    if os.path.basename(log.directory) not in present:
                        self._lose(directory, log.topic_partition)

    def _lose(self, directory: LogDirectory, partition: TopicPartition) -> bool:
        """Whether this partition alone is lost, because its directory is gone and the directory above it is not."""
        if not directory.fs.is_dir(directory.path):
            return False
        for logs in (self.current, self.future):
            log = logs.get(partition)
            if log is None or os.path.dirname(log.directory) != directory.path:
                continue
            if directory.fs.is_dir(log.directory) or logs.pop(partition, None) is not log:
                continue
            log.take_offline(f"its directory {log.directory} has vanished")
            logger.error("%s", vanished(log.directory))
            if logs is self.current:
                self.lost[partition] = log.directory
                self._on_offline(directory, [partition])
            return True
        return False

    def take_offline(self, directory: LogDirectory) -> None:
        """Forgets the logs of a directory that failed. Takes no lock: the caller may hold a log's."""
        partitions = []
        for logs in (self.current, self.future):
            for partition, log in list(logs.items()):
                if os.path.dirname(log.directory) == directory.path and logs.pop(partition, None) is log:
                    log.take_offline(f"log directory {directory.path} is offline")
                    if logs is self.current:
                        partitions.append(partition)
        logger.error("%d partitions in %s are offline", len(partitions), directory.path)
        self._on_offline(directory, partitions)
