"""A follower's changes of its log: it appends its leader's records, and truncates those that its leader lacks.

A future log follows the current log of its partition by the same rules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from barnabas.errors import CorruptMessage, InvalidRecord
from barnabas.log.cleaner.manager import CleanerManager
from barnabas.log.file_system import Data
from barnabas.log.manager.directories import LogDirectories
from barnabas.log.manager.offset_checkpoints import OffsetCheckpoints
from barnabas.log.manager.open_logs import OpenLogs
from barnabas.log.partition.append import AppendInfo, UnexpectedAppendOffset
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import TopicPartition
from barnabas.records.layout import LOG_OVERHEAD_BYTES

logger = logging.getLogger(__name__)


class FollowerLogs:
    """Truncates logs together with their checkpoints: on return they agree, so that appends may follow.

    Threads: one thread at a time appends to a log and truncates it. The cleaner is excluded during this time.
    """

    def __init__(
        self,
        directories: LogDirectories,
        logs: OpenLogs,
        cleaner: CleanerManager,
        checkpoints: OffsetCheckpoints,
    ) -> None:
        self._directories = directories
        self._logs = logs
        self._cleaner = cleaner
        self._checkpoints = checkpoints

    def append(self, partition: TopicPartition, records: Data, *, is_future: bool = False) -> AppendInfo:
        """As PartitionLog.append_as_follower. An empty log may begin with a batch that holds its start offset.

        Records can be deleted up to the middle of a batch. A follower that begins there gets the whole batch, and its
        log begins with that batch.
        """
        log = self._logs.required(partition, is_future=is_future)
        if len(records) <= log.config.segment_bytes:
            return self._append(log, records, is_future)
        # The segments here may be smaller than what the leader sends at a time.
        info: AppendInfo | None = None
        for part in _in_parts(records, log.config.segment_bytes):
            try:
                info = self._append(log, part, is_future)
            except (CorruptMessage, InvalidRecord):
                if info is None:
                    raise
                # What is written counts. The next fetch begins with the damaged records.
                break
        assert info is not None
        return info

    def _append(self, log: PartitionLog, records: Data, is_future: bool) -> AppendInfo:
        try:
            return log.append_as_follower(records)
        except UnexpectedAppendOffset as unexpected:
            end_offset = log.log_end_offset
            is_empty = end_offset == log.log_start_offset
            if not is_empty or not unexpected.first_offset < end_offset <= unexpected.last_offset:
                raise
            logger.info("%s begins at %d, within a batch", log.topic_partition, end_offset)
            self.truncate_fully_and_start_at(
                log.topic_partition, unexpected.first_offset, is_future=is_future
            )
            return log.append_as_follower(records)

    def truncate_to(self, partition: TopicPartition, offset: int, *, is_future: bool = False) -> bool:
        log = self._logs.required(partition, is_future=is_future)
        with self._cleaner.exclusion.paused(partition):
            try:
                if not log.truncate_to(offset):
                    return False
            except (CorruptMessage, InvalidRecord):
                # The log is truncated, and what is left of it cannot be read.
                self._settle(log, is_future)
                raise
            self._settle(log, is_future)
        return True

    def truncate_fully_and_start_at(
        self, partition: TopicPartition, offset: int, *, is_future: bool = False
    ) -> None:
        log = self._logs.required(partition, is_future=is_future)
        with self._cleaner.exclusion.paused(partition):
            log.truncate_fully_and_start_at(offset)
            self._settle(log, is_future)

    def _settle(self, log: PartitionLog, is_future: bool) -> None:
        """The recovery point may have gone back: that must be on the disk before anything is appended."""
        directory = self._directories.of(log)
        if not is_future:
            self._cleaner.offsets.truncate(directory, log.topic_partition, log.segments.active.base_offset)
        self._checkpoints.write(directory)


def _in_parts(records: Data, max_bytes: int) -> Iterator[Data]:
    """Cuts records between batches. A part has one batch at least, and `max_bytes` at most if that can be.

    Of every format, an entry begins with its offset and the length of the rest. What is not a whole entry is left to
    the append to judge.
    """
    start = position = 0
    end = len(records)
    while end - position >= LOG_OVERHEAD_BYTES:
        length = int.from_bytes(records[position + 8 : position + LOG_OVERHEAD_BYTES], "big", signed=True)
        following = position + LOG_OVERHEAD_BYTES + length
        if length <= 0 or following > end:
            break
        if following - start > max_bytes and position > start:
            yield records[start:position]
            start = position
        position = following
    yield records[start:]
