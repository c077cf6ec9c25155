"""All logs of a broker, in all its log directories.

A manager has parts. Each part states what it owns and its thread rule:

    LogDirectories      the directories, and which of them are offline
    OpenLogs            which log belongs to which partition
    LogOpener           the settings that logs are opened with
    LogStartup          opening all logs when the broker starts
    OffsetCheckpoints   recovery points, start offsets and high watermarks on disk
    LogRemoval          deletion, in two steps
    FollowerLogs        appends and truncation by a follower, with the checkpoints
    LogMoves            moving a partition to another directory
    CleanerManager      compaction, and keeping it away from logs that change otherwise

A directory whose disk fails goes offline with its partitions, and the others continue. After the disk is repaired, the
broker must be restarted.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError
from barnabas.log import names
from barnabas.log.checkpoints import NO_BROKER_EPOCH, write_clean_shutdown
from barnabas.log.cleaner.manager import CleanerManager
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import Data, StorageFailure
from barnabas.log.manager.directories import LogDirectories
from barnabas.log.manager.followers import FollowerLogs
from barnabas.log.manager.loading import OnProgress
from barnabas.log.manager.moves import LogMoves
from barnabas.log.manager.offset_checkpoints import OffsetCheckpoints
from barnabas.log.manager.open_logs import OnOffline, OpenLogs, vanished
from barnabas.log.manager.opener import NEW_LOG, LogOpener
from barnabas.log.manager.removal import LogRemoval
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.manager.startup import LogStartup
from barnabas.log.partition.append import AppendInfo
from barnabas.log.partition.environment import LogEnvironment
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition
from barnabas.primitives.unhurried import unhurried

logger = logging.getLogger(__name__)


class LogManager:
    """Threads: any thread calls. Methods read and write files, so they do not belong on an event loop."""

    def __init__(
        self,
        directories: Sequence[str],
        *,
        environment: LogEnvironment,
        config_of: Callable[[str], LogConfig],
        settings: ManagerSettings | None = None,
        on_offline: OnOffline = lambda _directory, _partitions: None,
        knows_topic: Callable[[str], bool] = lambda _topic: True,
        locks: bool = True,
    ) -> None:
        """`on_offline` is called in whichever thread met the failure. Disks that are not real need no `locks`."""
        self._environment = environment
        self._directories = LogDirectories(environment.fs, directories, self._take_offline, locks=locks)
        self._logs = OpenLogs(self._directories, on_offline)
        self._opener = LogOpener(
            environment,
            config_of,
            ManagerSettings() if settings is None else settings,
            self._logs.note_failure,
        )
        self._checkpoints = OffsetCheckpoints(self._directories, self._logs)
        self.cleaner = CleanerManager(environment.clock, self._logs.with_directories)
        self._removal = LogRemoval(
            environment, self._directories, self._logs, self._opener, self.cleaner, self._checkpoints
        )
        self._followers = FollowerLogs(self._directories, self._logs, self.cleaner, self._checkpoints)
        self._moves = LogMoves(
            self._directories,
            self._logs,
            self._opener,
            self.cleaner,
            self._checkpoints,
            self._removal,
            self._followers,
        )
        self._startup = LogStartup(self._directories, self._logs, self._opener, self._removal, knows_topic)

    @property
    def settings(self) -> ManagerSettings:
        return self._opener.settings

    @settings.setter
    def settings(self, settings: ManagerSettings) -> None:
        self._opener.settings = settings

    # Starting and stopping.

    def lock(self) -> None:
        """Creates the directories that are missing, and locks them; those that cannot be used go offline.

        Raises DirectoryInUse if another broker has one of them, and KafkaStorageError if none is usable.
        """
        self._directories.lock()

    def open(self, on_progress: OnProgress = lambda _: None) -> None:
        """Opens every log; locks the directories first, if that has not been done. Raises as `lock` does."""
        self._directories.lock()
        try:
            self._startup.open_all(on_progress)
            self._directories.check_usable()
        except BaseException:
            self.release()
            raise

    def close(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Flushes and closes all logs and marks their directories as cleanly stopped."""
        self._removal.stop()
        self._logs.find_vanished()
        fs = self._environment.fs
        for directory in self.live_directories():
            try:
                fs.sync_dir(directory.path)
                for log in self._logs.in_directory(directory):
                    log.flush(syncs_above=False)
                    log.close()
                self.checkpoint(directory)
                if directory.path not in self._startup.incomplete and not directory.is_offline:
                    write_clean_shutdown(fs, directory.file(names.CLEAN_SHUTDOWN), broker_epoch)
            except KafkaStorageError as error:
                logger.error("%s is not stopped cleanly: %s", directory.path, error)
        self.release()

    def release(self) -> None:
        """Unlocks the directories."""
        self._directories.release()

    def _take_offline(self, directory: LogDirectory) -> None:
        self._logs.take_offline(directory)

    # Directories.

    @property
    def directories(self) -> list[LogDirectory]:
        return self._directories.all

    def live_directories(self) -> list[LogDirectory]:
        return self._directories.live()

    def directory(self, path: str) -> LogDirectory:
        return self._directories.at(path)

    def directory_of(self, log: PartitionLog) -> LogDirectory:
        return self._directories.of(log)

    @property
    def unnamed_directories(self) -> list[str]:
        """Directories that were in use before and that the settings do not name. They may hold a partition's log."""
        return self._directories.unnamed

    @unnamed_directories.setter
    def unnamed_directories(self, paths: list[str]) -> None:
        self._directories.unnamed = paths

    # Logs.

    def log(self, partition: TopicPartition, *, is_future: bool = False) -> PartitionLog | None:
        return self._logs.find(partition, is_future=is_future)

    def logs(self) -> list[PartitionLog]:
        """The logs of all partitions. A partition that moves to another directory has two."""
        return self._logs.all()

    @property
    def log_count(self) -> int:
        """How many partitions have an open log."""
        return len(self._logs.current)

    def get_or_create(
        self,
        partition: TopicPartition,
        topic_id: bytes | None,
        *,
        is_new: bool = False,
        sets_aside: bool = False,
        directory: str | None = None,
    ) -> PartitionLog:
        """The partition's log; a new one is created in the given directory, else where there are fewest.

        A partition that is not new may be in a directory that is offline: then it is not created again elsewhere.
        With `sets_aside`, the log of an earlier topic of this name gives way to a new one. Else it raises
        InconsistentTopicId.
        """
        with self._logs.changing:
            existing = self._logs.find(partition)
            if existing is None:
                return self._create(partition, topic_id, is_new, directory)
            # Before protocol level 2.8 topics have no ids: those of their partitions are zeros.
            if topic_id is None or not any(topic_id):
                return existing
            if sets_aside and existing.topic_id not in (None, topic_id):
                self._removal.set_aside(existing)
                return self._create(partition, topic_id, True, directory)
            existing.assign_topic_id(topic_id)
            return existing

    def _create(
        self, partition: TopicPartition, topic_id: bytes | None, is_new: bool, directory: str | None
    ) -> PartitionLog:
        logs = self._logs
        if partition in logs.unopened:
            raise KafkaStorageError(
                f"{logs.unopened[partition]} could not be opened when the broker was started, and holds the records"
                f" of {partition}"
            )
        lost_path = logs.lost.get(partition)
        if lost_path is not None:
            if not (is_new or self.settings.accepts_loss(lost_path)):
                raise KafkaStorageError(vanished(lost_path))
            # An empty directory may still be there.
            directory = os.path.dirname(lost_path)
        elif not is_new:
            self._directories.check_complete(partition)
        choices = self._emptiest_first() if directory is None else [self.directory(directory)]
        for choice in choices:
            try:
                log = self._opener.open(choice, names.partition_dir(partition), NEW_LOG, topic_id)
                choice.register.add([partition])
            except StorageFailure as failure:
                choice.fail(failure)
                continue
            logs.add(log)
            if logs.lost.pop(partition, None) is not None:
                # The old recovery point would say of the new log that it is on the disk.
                self.checkpoint(choice)
            return log
        raise KafkaStorageError(f"there is no log directory for {partition}: all are offline")

    def _emptiest_first(self) -> list[LogDirectory]:
        live = self.live_directories()
        if len(live) == 1:
            return live
        counts = Counter(map(self.directory_of, self.logs()))
        return sorted(live, key=lambda directory: counts[directory])

    def delete(self, partition: TopicPartition, *, is_future: bool = False) -> None:
        """Deletes the log: it is out of use at once, and its files go after a while."""
        for failure in self._removal.delete_all([partition], is_future=is_future).values():
            raise failure

    def delete_all(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaStorageError]:
        """As `delete`, with one sync for all. Returns why some of them cannot be deleted."""
        return self._removal.delete_all(partitions)

    def create_future(self, partition: TopicPartition, directory: str) -> PartitionLog:
        """A second log for the partition, in the directory that it moves to."""
        return self._moves.create_future(partition, directory)

    def copy_to_future(self, partition: TopicPartition) -> bool:
        """Copies the next records to the future log; true when it has all of them."""
        return self._moves.copy_to_future(partition)

    def replace_with_future(self, partition: TopicPartition) -> PartitionLog:
        """The future log, which has caught up, takes the place of the current one, which is deleted."""
        return self._moves.replace_with_future(partition)

    # A follower's changes of its log, and of the checkpoints with it.

    def append_as_follower(self, partition: TopicPartition, records: Data) -> AppendInfo:
        """As PartitionLog.append_as_follower. An empty log may begin with a batch that holds its start offset."""
        return self._followers.append(partition, records)

    def truncate_to(self, partition: TopicPartition, offset: int, *, is_future: bool = False) -> bool:
        """As PartitionLog.truncate_to. On return the checkpoints agree with the log, so that appends may follow."""
        return self._followers.truncate_to(partition, offset, is_future=is_future)

    def truncate_fully_and_start_at(
        self, partition: TopicPartition, offset: int, *, is_future: bool = False
    ) -> None:
        """As PartitionLog.truncate_fully_and_start_at. On return the checkpoints agree with the log."""
        self._followers.truncate_fully_and_start_at(partition, offset, is_future=is_future)

    # Checkpoints, and periodic work for all logs.

    def checkpoint_all(self) -> None:
        """Writes all checkpoints, after a look at whether the logs are still there."""
        self._logs.find_vanished()
        self._checkpoints.write_all()

    def checkpoint(self, directory: LogDirectory) -> None:
        """Writes recovery points and start offsets of a directory's logs."""
        self._checkpoints.write(directory)

    def checkpoint_high_watermarks(self) -> None:
        self._checkpoints.write_high_watermarks()

    def update_config(self, topic: str) -> None:
        """Applies the topic's current settings to its logs."""
        config = self._opener.config_of(topic)
        for log in unhurried(self.logs()):
            if log.topic_partition.topic == topic:
                log.update_config(config)

    def retain(self) -> int:
        """Deletes the segments that retention lets go of; how many."""
        count = 0
        for log in unhurried(self.logs(), 8):
            partition = log.topic_partition
            if self.cleaner.exclusion.try_pause(partition):
                try:
                    count += log.delete_old_segments()
                except KafkaStorageError as error:
                    logger.error("retention of %s: %s", partition, error)
                finally:
                    self.cleaner.exclusion.resume(partition)
        return count

    def flush_overdue(self) -> None:
        """Flushes the logs that were last flushed over `flush.ms` ago."""
        now_ms = self._environment.clock.now_ms()
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
