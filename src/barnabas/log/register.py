"""The register of the partitions that have a log in a log directory, so that a missing one is noticed.

The register is a text file beside the partitions' directories. Each line says that a log was created or removed, and
ends with a checksum:

    made orders 0 1c291ca3
    removed orders 0 5a3b0c11

A line is written after the log's files, and is not waited for, as they are not: a power failure that loses a new log
loses its line first. The file is a hint. Damaged lines are ignored, and then the checkpoint of recovery points, which
names the partitions too, fills in.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from barnabas.log.file_system import CREATE, File, FileSystem, NoSuchFile
from barnabas.model import TopicPartition
from barnabas.primitives.crc32c import crc32c

logger = logging.getLogger(__name__)

MADE: Final = "made"
REMOVED: Final = "removed"
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

    def load(self, otherwise: Collection[TopicPartition]) -> set[TopicPartition]:
        """The partitions that have a log here; if the file is incomplete, those of `otherwise` too."""
        try:
            data = self._fs.read_file(self._path)
        except NoSuchFile:
            self._partitions = set(otherwise)
            self._rewrite()
            return set(self._partitions)
        lines = data.split(b"\n")
        damaged = int(lines.pop() != b"")
        for line in lines:
            parsed = _parse(line)
            if parsed is None:
                damaged += 1
                continue
            word, partition = parsed
            (self._partitions.add if word == MADE else self._partitions.discard)(partition)
        if damaged:
            logger.warning("%s has %d damaged lines, and is written again", self._path, damaged)
            self._partitions.update(otherwise)
        if damaged or len(lines) - len(self._partitions) > STALE_LINES_MAX:
            self._rewrite()
        else:
            self._position = len(data)
        return set(self._partitions)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        new = [each for each in partitions if each not in self._partitions]
        self._partitions.update(new)
        self._append(MADE, new)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = [each for each in partitions if each in self._partitions]
        self._partitions.difference_update(gone)
        self._append(REMOVED, gone)

    def close(self) -> None:
        self._file = None

    def _append(self, word: str, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        if self._file is None:
            self._file = self._fs.open(self._path, CREATE)
        data = b"".join(_line(word, each) for each in partitions)
        self._file.pwrite(data, self._position)
        self._position += len(data)

    def _rewrite(self) -> None:
        self._file = None
        data = b"".join(_line(MADE, each) for each in sorted(self._partitions))
        if data or self._fs.exists(self._path):
            self._fs.write_atomically(self._path, data)
        self._position = len(data)


def _line(word: str, partition: TopicPartition) -> bytes:
    text = f"{word} {partition.topic} {partition.partition}".encode()
    return b"%b %08x\n" % (text, crc32c(text))


def _parse(line: bytes) -> tuple[str, TopicPartition] | None:
    text, _, checksum = line.rpartition(b" ")
    if b"%08x" % crc32c(text) != checksum:
        return None
    word, topic, partition = text.decode().split(" ")
    return word, TopicPartition(topic, int(partition))
