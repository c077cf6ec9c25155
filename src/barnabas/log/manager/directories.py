"""The log directories of a broker: locking them, finding one, and what it means that one is offline."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from barnabas.errors import KafkaStorageError, LogDirNotFound
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import FileSystem, StorageFailure
from barnabas.log.manager.directory_check import explained, probe
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition


class LogDirectories:
    """Owns the log directories. A directory whose disk fails stays in the list and is offline.

    Threads: any thread calls. A directory goes offline in whichever thread meets the failure; no lock is needed for it.
    """

    def __init__(
        self,
        fs: FileSystem,
        paths: Sequence[str],
        on_failure: Callable[[LogDirectory], None],
        *,
        locks: bool,
    ) -> None:
        self.all = [LogDirectory(fs, path, on_failure) for path in paths]
        # Directories that were in use before and that the settings do not name. They may hold a partition's log.
        self.unnamed: list[str] = []
        self._fs = fs
        self._locks = locks
        self._by_path = {directory.path: directory for directory in self.all}
        self._is_locked = False

    def live(self) -> list[LogDirectory]:
        return [directory for directory in self.all if not directory.is_offline]

    def at(self, path: str) -> LogDirectory:
        directory = self._by_path.get(path)
        if directory is None:
            raise LogDirNotFound(f"{path} is none of this broker's log directories")
        return directory

    def of(self, log: PartitionLog) -> LogDirectory:
        return self.above(log.directory)

    def above(self, path: str) -> LogDirectory:
        """The log directory in which a partition's directory lies."""
        return self._by_path[os.path.dirname(path)]

    def lock(self) -> None:
        """Creates and locks the directories, once. Those that cannot be used go offline.

        Raises DirectoryInUse if another broker has one of them, and KafkaStorageError if none is usable.
        """
        if self._is_locked:
            return
        try:
            for directory in self.live():
                try:
                    directory.open(locks=self._locks)
                    probe(self._fs, directory.path)
                except StorageFailure as failure:
                    directory.fail(explained(self._fs, directory.path, failure))
            self.check_usable()
        except BaseException:
            self.release()
            raise
        self._is_locked = True

    def release(self) -> None:
        """Unlocks the directories."""
        for directory in self.all:
            directory.close()

    def check_usable(self) -> None:
        if not self.live():
            raise KafkaStorageError(
                "no log directory can be used: " + "; ".join(each.failure for each in self.all)
            )

    def check_complete(self, partition: TopicPartition) -> None:
        """Raises KafkaStorageError if the partition's log may be in a directory that is not in use."""
        offline = [directory.path for directory in self.all if directory.is_offline]
        if offline:
            raise KafkaStorageError(f"{partition} may be in {', '.join(offline)}, which is offline")
        if self.unnamed:
            raise KafkaStorageError(
                f"{partition} may be in {', '.join(self.unnamed)}, which was in use before and is not in log.dirs now."
                " Add it again, or, if its records are lost for good, start once with --override"
                f" barnabas.accept.loss={','.join(self.unnamed)}"
            )
