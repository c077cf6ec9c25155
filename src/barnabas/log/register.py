"""The register of the partitions that have a log in a log directory, so that a missing one is noticed.

The register is a text file beside the partitions' directories. Each line ends with a checksum. It says that a log was
created or removed, or, at first, since which start of the machine the file is written:

    boot 6c1f…-…-1d2a 0 0f2e6a31
    made orders 0 1c291ca3
    removed orders 0 5a3b0c11
    missed orders 1 77c01f9a

A line is written after the log's files. Nobody waits for the disk: thousands of logs may be created at once, and a new
log is synced with its first flush. So a power failure may leave a line whose log never reached the disk, or lose a
`removed` line. Therefore, if the machine was started again since the file was written, the checkpoint of recovery
points counts instead: it is written after a flush, and has an offset above 0 for a log that is on the disk. A process
that is killed loses nothing, and the lines count. The checkpoint forgets a log that is not open, so one that was missed
at a start is `missed` at every start, until it is there again or is given up.

The file is a hint. Damaged lines are ignored, and then the checkpoint of recovery points fills in.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from barnabas.log.file_system import CREATE, File, FileSystem, NoSuchFile
from barnabas.model import TopicPartition
from barnabas.primitives.crc32c import crc32c

logger = logging.getLogger(__name__)

MADE: Final = "made"
REMOVED: Final = "removed"
MISSED: Final = "missed"
BOOT: Final = "boot"
# The file is rewritten when it has this many obsolete lines.
STALE_LINES_MAX: Final = 1_000


class PartitionRegister:
    """One thread at a time uses it."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._file: File | None = None
        self._position = 0
        self._partitions: set[TopicPartition] = set()
        # Those of them that an earlier start has missed.
        self._missed: set[TopicPartition] = set()
        self.unflushed: set[TopicPartition] = set()
        """Partitions whose log may have been lost with the power, as nothing of it was ever flushed."""

    def load(self, recovery_points: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """The partitions that have a log here; if the file is incomplete, those with a recovery point too."""
        flushed = {partition for partition, offset in recovery_points.items() if offset > 0}
        try:
            data = self._fs.read_file(self._path)
        except NoSuchFile:
            self._partitions = flushed
            self._rewrite()
            return set(self._partitions)
        lines = data.split(b"\n")
        damaged = int(lines.pop() != b"")
        boot_id = ""
        for line in lines:
            parsed = _parse(line)
            if parsed is None:
                damaged += 1
                continue
            word, partition = parsed
            if word == BOOT:
                boot_id = partition.topic
                continue
            (self._partitions.discard if word == REMOVED else self._partitions.add)(partition)
            (self._missed.add if word == MISSED else self._missed.discard)(partition)
        was_restarted = boot_id != self._fs.boot_id()
        if damaged:
            logger.warning("%s has %d damaged lines, and is written again", self._path, damaged)
            self._partitions.update(recovery_points)
        if was_restarted:
            self.unflushed = self._partitions - flushed - self._missed
            self._partitions = flushed | self._missed
        if damaged or was_restarted or len(lines) - len(self._partitions) > STALE_LINES_MAX:
            self._rewrite()
        else:
            self._position = len(data)
        return set(self._partitions)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        new = [each for each in partitions if each not in self._partitions or each in self._missed]
        self._partitions.update(new)
        self._append(MADE, new)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = [each for each in partitions if each in self._partitions]
        self._partitions.difference_update(gone)
        self._append(REMOVED, gone)

    def note_missing(self, partitions: Iterable[TopicPartition]) -> None:
        """Sets, for good, which of the logs are missing."""
        missing = set(partitions)
        if missing != self._missed:
            self._partitions |= missing
            self._missed = missing
            self._rewrite()

    def close(self) -> None:
        self._file = None

    def _append(self, word: str, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        if not self._missed.isdisjoint(partitions):
            # Lines about missing logs count after a power failure too, so this one must not get lost.
            self._missed.difference_update(partitions)
            self._rewrite()
            return
        if self._file is None:
            self._file = self._fs.open(self._path, CREATE)
        data = b"".join(_line(word, each) for each in partitions)
        if self._position == 0:
            data = self._boot_line() + data
        self._file.pwrite(data, self._position)
        self._position += len(data)

    def _rewrite(self) -> None:
        self._file = None
        if not self._partitions and not self._fs.exists(self._path):
            return
        data = self._boot_line() + b"".join(
            _line(MISSED if each in self._missed else MADE, each) for each in sorted(self._partitions)
        )
        self._fs.write_atomically(self._path, data)
        self._position = len(data)

    def _boot_line(self) -> bytes:
        return _line(BOOT, TopicPartition(self._fs.boot_id(), 0))


def _line(word: str, partition: TopicPartition) -> bytes:
    text = f"{word} {partition.topic} {partition.partition}".encode()
    return b"%b %08x\n" % (text, crc32c(text))


def _parse(line: bytes) -> tuple[str, TopicPartition] | None:
    text, _, checksum = line.rpartition(b" ")
    if b"%08x" % crc32c(text) != checksum:
        return None
    word, topic, partition = text.decode().split(" ")
    return word, TopicPartition(topic, int(partition))
