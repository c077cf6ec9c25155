"""Opens all logs of a broker when it starts, and completes moves between directories that a crash interrupted.

After a clean shutdown logs are trusted; files that differ from the lists of side files are rebuilt. After a crash every
log is recovered, several at a time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from barnabas.log import names
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import StorageFailure
from barnabas.log.manager.directories import LogDirectories
from barnabas.log.manager.loading import OnProgress, load_directory
from barnabas.log.manager.open_logs import OpenLogs
from barnabas.log.manager.opener import LogOpener
from barnabas.log.manager.removal import LogRemoval
from barnabas.log.manager.settings import ManagerSettings
from barnabas.model import TopicPartition

logger = logging.getLogger(__name__)


class LogStartup:
    """Used once, by one thread, before the logs are in use. It starts its own threads."""

    def __init__(
        self,
        directories: LogDirectories,
        logs: OpenLogs,
        opener: LogOpener,
        removal: LogRemoval,
        knows_topic: Callable[[str], bool],
    ) -> None:
        self._directories = directories
        self._logs = logs
        self._opener = opener
        self._removal = removal
        self._knows_topic = knows_topic
        # Partitions with a log that waits for its deletion.
        self._marked: set[TopicPartition] = set()
        self.incomplete: set[str] = set()
        """Paths of directories some of whose logs could not be opened: they are not marked as cleanly stopped."""

    @property
    def _settings(self) -> ManagerSettings:
        return self._opener.settings

    def open_all(self, on_progress: OnProgress) -> None:
        self._load_all(self._directories.live(), on_progress)
        self._promote()
        self._settle_lost()

    def _load_all(self, directories: Sequence[LogDirectory], on_progress: OnProgress) -> None:
        if len(directories) <= 1:
            for directory in directories:
                self._load(directory, on_progress)
            return
        # Directories usually are disks, which work in parallel.
        with ThreadPoolExecutor(len(directories), thread_name_prefix="log-loading") as pool:
            for future in [pool.submit(self._load, directory, on_progress) for directory in directories]:
                future.result()

    def _load(self, directory: LogDirectory, on_progress: OnProgress) -> None:
        try:
            loaded = load_directory(
                directory,
                self._opener.open,
                self._settings.num_recovery_threads_per_data_dir,
                on_progress,
                misses_logs=self._settings.misses_logs,
            )
        except StorageFailure as failure:
            directory.fail(failure)
            return
        if not loaded.is_complete:
            self.incomplete.add(directory.path)
        self._logs.unopened.update(loaded.unopened)
        self._logs.lost.update(loaded.lost)
        for path in loaded.deleted:
            self._marked.add(names.parse_partition_dir(os.path.basename(path)).partition)
        if self._settings.removes_deleted:
            self._removal.remove_later([(path, None) for path in loaded.deleted])
        for log in loaded.current:
            self._logs.add(log)
        for log in loaded.future:
            self._logs.add(log, is_future=True)
        if directory.is_offline:
            self._logs.take_offline(directory)

    def _promote(self) -> None:
        """Puts future logs in place whose originals were marked for deletion just before a crash."""
        logs = self._logs
        if len(self._directories.live()) < len(self._directories.all):
            return
        for partition, future in list(logs.future.items()):
            is_alone = partition not in logs.current and partition not in logs.unopened
            # If the topic is not known, the originals were marked because it was deleted.
            if is_alone and partition in self._marked and self._knows_topic(partition.topic):
                future.rename_dir(names.partition_dir(partition))
                logs.current[partition] = logs.future.pop(partition)
        self._marked.clear()

    def _settle_lost(self) -> None:
        """Some of the missing logs were deleted or moved just before a crash; the others are gone."""
        logs = self._logs
        # If the store has lost a topic, its logs are there: it is adopted, and the missing one is part of it.
        present = {each.topic for each in (*logs.current, *logs.unopened)} if logs.lost else set()
        for partition, path in list(logs.lost.items()):
            directory = self._directories.above(path)
            is_elsewhere = partition in logs.current or partition in logs.unopened
            is_deleted = not self._knows_topic(partition.topic) and partition.topic not in present
            if is_elsewhere or is_deleted or directory.is_offline:
                del logs.lost[partition]
                if not directory.is_offline:
                    directory.note(directory.register.remove, [partition])
            elif self._settings.accepts_loss(path):
                logger.warning(
                    "%s has disappeared. The broker creates it without records, as barnabas.accept.loss says",
                    path,
                )
