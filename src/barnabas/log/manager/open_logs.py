"""The logs of a broker that are open, in all its log directories: loaded, found, checkpointed, closed.

Opening a directory after a clean stop trusts its logs; what differs from the lists of side files is rebuilt. After a
crash every log is recovered, several at a time. While
the broker runs, checkpoints say from where on recovery would have to begin. A directory whose disk fails goes offline
with its partitions, and the others go on; once it is well, the broker is started anew.

A log that fails reports here with its own lock held, so that taking a directory offline takes no lock at all.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from random import Random

from barnabas.clock import Clock
from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError, LogDirNotFound
from barnabas.log import names
from barnabas.log.checkpoints import NO_BROKER_EPOCH, write_clean_shutdown
from barnabas.log.cleaner.manager import CleanerManager
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import FileSystem, StorageFailure
from barnabas.log.manager.directory_check import explained, probe
from barnabas.log.manager.loading import OnProgress, load_directory
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.partition.environment import LogEnvironment, OnFlush, PriorState
from barnabas.log.partition.loader import OnSegmentRecovered
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.scheduler import Scheduler
from barnabas.model import TopicPartition
from barnabas.primitives.unhurried import unhurried

logger = logging.getLogger(__name__)

OnOffline = Callable[[LogDirectory, list[TopicPartition]], None]


class DuplicateLog(KafkaStorageError):
    """A partition has a log in two directories: a move was cut short by a failing disk. A person must choose."""


class OpenLogs:
    """The part of a LogManager that neither makes nor moves nor deletes logs."""

    def __init__(
        self,
        directories: Sequence[str],
        *,
        fs: FileSystem,
        clock: Clock,
        scheduler: Scheduler,
        config_of: Callable[[str], LogConfig],
        settings: ManagerSettings | None = None,
        rng: Random | None = None,
        on_offline: OnOffline = lambda _directory, _partitions: None,
        on_flush: OnFlush | None = None,
        knows_topic: Callable[[str], bool] = lambda _topic: True,
        locks: bool = True,
    ) -> None:
        """`on_offline` is called in whichever thread has met the failure; `locks` is for disks that are not real.

        Of a topic that is not known when the logs are opened, the originals were marked since it was deleted.
        """
        self._environment = LogEnvironment(
            fs=fs,
            clock=clock,
            scheduler=scheduler,
            rng=Random() if rng is None else rng,
            on_flush=on_flush,
        )
        self.settings = ManagerSettings() if settings is None else settings
        self.directories = [LogDirectory(fs, path, self._take_offline) for path in directories]
        self._fs = fs
        self._clock = clock
        self._scheduler = scheduler
        self._config_of = config_of
        self._on_offline = on_offline
        self._knows_topic = knows_topic
        self._locks = locks
        # Held while logs are made, moved and deleted, which takes time; never by whoever reports a failure.
        self._changing = threading.RLock()
        self._current: dict[TopicPartition, PartitionLog] = {}
        self._future: dict[TopicPartition, PartitionLog] = {}
        self._by_path = {directory.path: directory for directory in self.directories}
        # Directories of which not every log could be opened are not marked as cleanly stopped.
        self._incomplete: set[str] = set()
        # Where the logs lie that could not be opened: they are neither opened otherwise nor made again elsewhere.
        self._unopened: dict[TopicPartition, str] = {}
        # Where the logs were that have vanished: they are not made again, empty, without a person's consent.
        self._lost: dict[TopicPartition, str] = {}
        # Directories that were in use before and that nobody names any more. They may hold a partition's log.
        self.unnamed_directories: list[str] = []
        self.cleaner = CleanerManager(clock, self._logs_with_directories)
        self._is_locked = False
        self._is_closed = False
        # Partitions of which there is a log that waits for its deletion.
        self._marked: set[TopicPartition] = set()

    @property
    def settings(self) -> ManagerSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: ManagerSettings) -> None:
        self._settings = settings
        self._environment = replace(self._environment, validate_fully=settings.validate_fully)
        producer_settings = self._environment.producer_settings
        producer_settings.producer_id_expiration_ms = settings.producer_id_expiration_ms
        producer_settings.verifies_transactions = settings.verifies_transactions

    def lock(self) -> None:
        """Makes the directories that are not there, and locks them; those that cannot be used go offline.

        Raises DirectoryInUse if another broker has one of them, and KafkaStorageError if none is usable.
        """
        try:
            for directory in self.live_directories():
                try:
                    directory.open(locks=self._locks)
                    probe(self._fs, directory.path)
                except StorageFailure as failure:
                    directory.fail(explained(self._fs, directory.path, failure))
            self._check_usable()
        except BaseException:
            self.release()
            raise
        self._is_locked = True

    def open(self, on_progress: OnProgress = lambda _: None) -> None:
        """Opens every log; locks the directories first, if that has not been done. Raises as `lock` does."""
        if not self._is_locked:
            self.lock()
        try:
            self._load_all(self.live_directories(), on_progress)
            self._promote()
            self._settle_lost()
            self._check_usable()
        except BaseException:
            self.release()
            raise

    def _check_usable(self) -> None:
        if not self.live_directories():
            raise KafkaStorageError(
                "no log directory can be used: " + "; ".join(each.failure for each in self.directories)
            )

    def _load_all(self, directories: Sequence[LogDirectory], on_progress: OnProgress) -> None:
        if len(directories) <= 1:
            for directory in directories:
                self._load(directory, on_progress)
            return
        # Directories are disks, more often than not, which work beside each other.
        with ThreadPoolExecutor(len(directories), thread_name_prefix="log-loading") as pool:
            for future in [pool.submit(self._load, directory, on_progress) for directory in directories]:
                future.result()

    def _load(self, directory: LogDirectory, on_progress: OnProgress) -> None:
        try:
            loaded = load_directory(
                directory,
                self._open_log,
                self.settings.num_recovery_threads_per_data_dir,
                on_progress,
                misses_logs=self.settings.misses_logs,
            )
        except StorageFailure as failure:
            directory.fail(failure)
            return
        if not loaded.is_complete:
            self._incomplete.add(directory.path)
        self._unopened.update(loaded.unopened)
        self._lost.update(loaded.lost)
        for path in loaded.deleted:
            self._marked.add(names.parse_partition_dir(os.path.basename(path)).partition)
        if self.settings.removes_deleted:
            self._remove_later([(path, None) for path in loaded.deleted])
        for registry, logs in ((self._current, loaded.current), (self._future, loaded.future)):
            for log in logs:
                self._register(registry, log)
        if directory.is_offline:
            self._take_offline(directory)

    def _promote(self) -> None:
        """Puts copies in place whose originals were marked for deletion just before a crash."""
        if len(self.live_directories()) < len(self.directories):
            return
        for partition, future in list(self._future.items()):
            is_alone = partition not in self._current and partition not in self._unopened
            if is_alone and partition in self._marked and self._knows_topic(partition.topic):
                future.rename_dir(names.partition_dir(partition))
                self._current[partition] = self._future.pop(partition)
        self._marked.clear()

    def _settle_lost(self) -> None:
        """Of what is missing, some was deleted or moved just before a crash; the rest is gone."""
        for partition, path in list(self._lost.items()):
            directory = self._by_path[os.path.dirname(path)]
            is_elsewhere = partition in self._current or partition in self._unopened
            if is_elsewhere or not self._knows_topic(partition.topic) or directory.is_offline:
                del self._lost[partition]
                if not directory.is_offline:
                    directory.note(directory.register.remove, [partition])
            elif self._is_accepted(path):
                logger.warning("%s has vanished, and begins again without records, as was asked for", path)

    def _is_accepted(self, path: str) -> bool:
        accepted = self.settings.accepted_losses
        return path in accepted or os.path.dirname(path) in accepted

    def _register(self, registry: dict[TopicPartition, PartitionLog], log: PartitionLog) -> None:
        with self._changing:
            other = registry.get(log.topic_partition)
            if other is not None:
                raise DuplicateLog(
                    f"{log.topic_partition} is in {other.directory} and in {log.directory}. A directory has probably"
                    " failed while the partition was moved: remove the one that is out of date"
                )
            registry[log.topic_partition] = log

    def _open_log(
        self,
        directory: LogDirectory,
        name: str,
        prior: PriorState,
        topic_id: bytes | None = None,
        on_segment_recovered: OnSegmentRecovered | None = None,
    ) -> PartitionLog:
        config = self._config_of(names.parse_partition_dir(name).partition.topic)
        if config.compact or not self.settings.expects_no_gaps:
            prior = replace(prior, is_gapless=False)
        return PartitionLog.open(
            directory.file(name),
            environment=self._environment,
            config=config,
            prior=prior,
            topic_id=topic_id,
            on_failure=directory.fail,
            on_segment_recovered=on_segment_recovered,
        )

    def log(self, partition: TopicPartition, *, is_future: bool = False) -> PartitionLog | None:
        return (self._future if is_future else self._current).get(partition)

    def logs(self) -> list[PartitionLog]:
        """Of all partitions, those that are being moved twice."""
        return [*self._current.values(), *self._future.values()]

    def directory_of(self, log: PartitionLog) -> LogDirectory:
        return self._by_path[os.path.dirname(log.directory)]

    def live_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_offline]

    def directory(self, path: str) -> LogDirectory:
        directory = self._by_path.get(path)
        if directory is None:
            raise LogDirNotFound(f"{path} is none of this broker's log directories")
        return directory

    def checkpoint_all(self) -> None:
        for directory in self.live_directories():
            self.checkpoint(directory)

    def checkpoint(self, directory: LogDirectory) -> None:
        """Writes recovery points and start offsets of a directory's logs."""
        if directory.is_offline:
            return
        recovery_points: dict[TopicPartition, int] = {}
        log_start_offsets: dict[TopicPartition, int] = {}
        try:
            with directory.checkpointing:
                for log in unhurried(self._in_directory(directory)):
                    recovery_points[log.topic_partition] = log.recovery_point
                    # Where the first segment starts needs no telling.
                    if log.log_start_offset > log.first_offset_on_disk:
                        log_start_offsets[log.topic_partition] = log.log_start_offset
                directory.write_checkpoint(names.RECOVERY_POINT_CHECKPOINT, recovery_points)
                directory.write_checkpoint(names.LOG_START_OFFSET_CHECKPOINT, log_start_offsets)
        except StorageFailure as failure:
            directory.fail(failure)

    def checkpoint_high_watermarks(self) -> None:
        for directory in self.live_directories():
            try:
                with directory.checkpointing:
                    logs = unhurried(self._in_directory(directory))
                    offsets = {log.topic_partition: log.high_watermark for log in logs}
                    directory.write_checkpoint(names.REPLICATION_OFFSET_CHECKPOINT, offsets)
            except StorageFailure as failure:
                directory.fail(failure)

    def close(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Flushes and closes all logs and marks their directories as cleanly stopped."""
        self._is_closed = True
        for directory in self.live_directories():
            try:
                self._fs.sync_dir(directory.path)
                for log in self._in_directory(directory):
                    log.flush(syncs_above=False)
                    log.close()
                self.checkpoint(directory)
                if directory.path not in self._incomplete and not directory.is_offline:
                    write_clean_shutdown(self._fs, directory.file(names.CLEAN_SHUTDOWN), broker_epoch)
            except KafkaStorageError as error:
                logger.error("%s is not stopped cleanly: %s", directory.path, error)
        self.release()

    def release(self) -> None:
        """Unlocks the directories."""
        for directory in self.directories:
            directory.close()

    def _required(self, partition: TopicPartition, *, is_future: bool = False) -> PartitionLog:
        log = self.log(partition, is_future=is_future)
        if log is None:
            raise KafkaStorageError(f"there is no {'future ' if is_future else ''}log of {partition}")
        return log

    def _in_directory(self, directory: LogDirectory) -> list[PartitionLog]:
        logs = self.logs()
        if len(self.directories) == 1:
            return logs
        return [log for log in unhurried(logs) if self.directory_of(log) is directory]

    def _logs_with_directories(self) -> Mapping[TopicPartition, tuple[LogDirectory, PartitionLog]]:
        current = unhurried(list(self._current.items()))
        return {partition: (self.directory_of(log), log) for partition, log in current}

    def _remove_later(self, marked: Sequence[tuple[str, PartitionLog | None]]) -> None:
        """Removes directories that are marked for deletion, with their logs if they were open."""
        if marked:
            action = partial(self._remove_all, marked)
            self._scheduler.schedule("delete-log", action, self.settings.file_delete_delay_ms)

    def _remove_all(self, marked: Sequence[tuple[str, PartitionLog | None]]) -> None:
        for path, log in marked:
            self._remove(path, log)

    def _remove(self, path: str, log: PartitionLog | None) -> None:
        directory = self._by_path[os.path.dirname(path)]
        if directory.is_offline or self._is_closed:
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

    def _take_offline(self, directory: LogDirectory) -> None:
        """Forgets the directory's logs. No lock is taken: whoever calls may hold a log's."""
        partitions = []
        for registry in (self._current, self._future):
            for partition, log in list(registry.items()):
                if os.path.dirname(log.directory) == directory.path and registry.pop(partition, None) is log:
                    log.take_offline(f"log directory {directory.path} is offline")
                    if registry is self._current:
                        partitions.append(partition)
        logger.error("%d partitions in %s are offline", len(partitions), directory.path)
        self._on_offline(directory, partitions)


def vanished(path: str) -> str:
    return (
        f"the log {path} has vanished, or has no segment any more: its partition is offline. Put the directory back and"
        " start again. If its records are lost for good, start once with --override"
        f" barnabas.accept.loss={path}"
    )
