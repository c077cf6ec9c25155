"""Writes the checkpoints of log directories: from where a recovery begins, where logs start, and high watermarks."""

from __future__ import annotations

from barnabas.log import names
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import StorageFailure
from barnabas.log.manager.directories import LogDirectories
from barnabas.log.manager.open_logs import OpenLogs
from barnabas.model import TopicPartition
from barnabas.primitives.unhurried import unhurried


class OffsetCheckpoints:
    """Threads: any thread calls. The directory's `checkpointing` lock lets newer offsets win."""

    def __init__(self, directories: LogDirectories, logs: OpenLogs) -> None:
        self._directories = directories
        self._logs = logs

    def write_all(self) -> None:
        for directory in self._directories.live():
            self.write(directory)

    def write(self, directory: LogDirectory) -> None:
        """Writes recovery points and start offsets of a directory's logs."""
        if directory.is_offline:
            return
        recovery_points: dict[TopicPartition, int] = {}
        log_start_offsets: dict[TopicPartition, int] = {}
        try:
            with directory.checkpointing:
                for log in unhurried(self._logs.in_directory(directory)):
                    recovery_points[log.topic_partition] = log.recovery_point
                    # A log that starts at its first segment needs no entry.
                    if log.log_start_offset > log.first_offset_on_disk:
                        log_start_offsets[log.topic_partition] = log.log_start_offset
                directory.write_checkpoint(names.RECOVERY_POINT_CHECKPOINT, recovery_points)
                directory.write_checkpoint(names.LOG_START_OFFSET_CHECKPOINT, log_start_offsets)
        except StorageFailure as failure:
            directory.fail(failure)

    def forget_removed(self, directory: LogDirectory) -> None:
        """After logs have left the directory: an entry that stayed would count for a later log of the same name."""
        self.write(directory)
        self._write_high_watermarks(directory)

    def write_high_watermarks(self) -> None:
        for directory in self._directories.live():
            self._write_high_watermarks(directory)

    def _write_high_watermarks(self, directory: LogDirectory) -> None:
        if directory.is_offline:
            return
        try:
            with directory.checkpointing:
                logs = unhurried(self._logs.in_directory(directory))
                offsets = {log.topic_partition: log.high_watermark for log in logs}
                directory.write_checkpoint(names.REPLICATION_OFFSET_CHECKPOINT, offsets)
        except StorageFailure as failure:
            directory.fail(failure)
