"""How far each log is clean, as the `cleaner-offset-checkpoint` of its directory says."""

from __future__ import annotations

import threading
from collections.abc import Collection

from barnabas.log.directory import LogDirectory
from barnabas.log.names import CLEANER_OFFSET_CHECKPOINT
from barnabas.model import TopicPartition


class CleanOffsets:
    """Changes the checkpoints of all log directories.

    Threads: any thread calls. A lock makes reading and writing a checkpoint one step.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def update(self, directory: LogDirectory, partition: TopicPartition, offset: int) -> None:
        with self._lock:
            offsets = directory.read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
            directory.write_checkpoint(CLEANER_OFFSET_CHECKPOINT, {**offsets, partition: offset})

    def forget(self, directory: LogDirectory, partitions: Collection[TopicPartition]) -> None:
        with self._lock:
            offsets = directory.read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
            gone = offsets.keys() & set(partitions)
            if gone:
                kept = {partition: offset for partition, offset in offsets.items() if partition not in gone}
                directory.write_checkpoint(CLEANER_OFFSET_CHECKPOINT, kept)

    def truncate(self, directory: LogDirectory, partition: TopicPartition, offset: int) -> None:
        """After a truncation a log is clean up to the offset at most."""
        with self._lock:
            known = directory.read_checkpoint(CLEANER_OFFSET_CHECKPOINT).get(partition)
            if known is not None and known > offset:
                self.update(directory, partition, offset)

    def move(self, source: LogDirectory, target: LogDirectory, partition: TopicPartition) -> None:
        with self._lock:
            known = source.read_checkpoint(CLEANER_OFFSET_CHECKPOINT).get(partition)
            if known is not None:
                self.update(target, partition, known)
                if not source.is_offline:
                    self.forget(source, [partition])
