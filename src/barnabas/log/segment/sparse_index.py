"""Shared parts of the offset index and the time index of a segment.

Both are files of big-endian entries, a key and a 4-byte value each, in which keys and values increase:

    offset index     | relative offset int32 | position int32        |
    time index       | timestamp int64               | relative offset int32 |

Only every few thousand bytes of log get an entry. Kafka maps these files into memory. Barnabas reads and writes them
with pread and pwrite, because a mapped page that a failing disk cannot read kills the whole process (SIGBUS), while a
failed pread takes one directory offline. Searches run over two arrays, the columns of the file, which are loaded at the
first search and kept as long as `FileSystem.index_memory` has room.

The file of an active segment is extended to the maximum size of the index, and truncated to its entries when the
segment is rolled or closed. New entries are collected and written a few at a time.

An index is a hint. The file has no checksum, but the log's list of side files has one for it (side_files.py), which is
compared when the file is first read; without a list the entries must at least increase and be within the log. A file
that does not pass is rebuilt at once from the headers of the log's batches.

One thread at a time appends and removes entries, after `verify`. Any thread may search or flush at the same time.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.log.file_system import FileSystem, NoSuchFile
from barnabas.log.segment.file import SegmentFile
from barnabas.log.segment.index_columns import Columns, split_columns
from barnabas.log.segment.indexed_log import IndexedLog
from barnabas.log.side_files import FileDigest
from barnabas.primitives.crc32c import crc32c
from barnabas.primitives.second_chance import Resident

logger = logging.getLogger(__name__)

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1

_PENDING_BYTES_MAX: Final = 1536
_UNKNOWN: Final = -1


class CorruptIndex(KafkaStorageError):
    """An index file with impossible content; it must be rebuilt from the log."""


class SparseIndex(Resident):
    """Entries of a key of 4 or 8 bytes and a value; the two kinds of index define their meaning."""

    __slots__ = (
        "_checksum",
        "_columns",
        "_entry",
        "_entry_count",
        "_expected",
        "_file",
        "_fs",
        "_has_slack",
        "_last_key",
        "_last_value",
        "_lock",
        "_log",
        "_pending",
        "_unsynced",
        "_written_bytes",
        "base_offset",
        "entry_bytes",
        "is_vouched_for",
        "max_entries",
    )

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        base_offset: int,
        max_bytes: int,
        entry: Struct,
        log: IndexedLog | None,
    ) -> None:
        """Without a log, a damaged file raises CorruptIndex."""
        super().__init__()
        self._fs = fs
        self._file = SegmentFile(fs, path)
        self._log = log
        # The expected content of the file, until it is first read.
        self._expected: FileDigest | None = None
        # The checksum of the written bytes; unknown until they have been read.
        self._checksum = _UNKNOWN
        self.is_vouched_for = False
        """Whether the entries are known to be those that were written, and not only to look like it."""
        self._entry = entry
        self.entry_bytes: int = entry.size
        self.base_offset = base_offset
        self.max_entries = max_bytes // self.entry_bytes
        self._columns: Columns | None = None
        self._entry_count = _UNKNOWN
        self._last_key = 0
        self._last_value = 0
        self._pending = bytearray()
        self._written_bytes = 0
        self._has_slack = False
        self._unsynced = False
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def entry_count(self) -> int:
        if self._entry_count < 0:
            self._loaded()
        return self._entry_count

    @property
    def size_bytes(self) -> int:
        """The size of the entries, without the preallocated rest of the file."""
        return self.entry_count * self.entry_bytes

    def expect(self, digest: FileDigest, *, is_current: bool) -> None:
        """The digest of the file in the list of side files, which is compared when the file is first read.

        A list that is known to be from the last shutdown is reliable for the number of entries and the last one.
        """
        self._expected = digest
        self.is_vouched_for = True
        if is_current and digest.is_current:
            self._checksum = digest.checksum
            self._entry_count = digest.size_bytes // self.entry_bytes
            self._written_bytes = digest.size_bytes
            self._last_key = digest.last_key
            self._last_value = digest.last_value

    def digest(self) -> FileDigest | None:
        """The digest of the file once it is trimmed; None if it was not read yet, and no list knows it."""
        with self._lock:
            expected = self._expected
            if self._entry_count < 0:
                if expected is None:
                    return None
                return FileDigest(expected.size_bytes, expected.checksum, is_current=False)
            if self._checksum < 0:
                data = self._file.reading().pread(self._written_bytes, 0) if self._written_bytes else b""
                self._checksum = crc32c(data)
            checksum = crc32c(bytes(self._pending), self._checksum) if self._pending else self._checksum
            size_bytes = self._written_bytes + len(self._pending)
            if not self._entry_count:
                return FileDigest(size_bytes, checksum)
            return FileDigest(size_bytes, checksum, self._last_key, self._last_value)

    def verify(self) -> None:
        """Makes sure that the file holds what it should, before anything is added to it or taken from it."""
        if self._expected is not None or self._entry_count < 0:
            self._loaded()

    def rebuild(self, reason: str) -> None:
        """Replaces the entries by those of the log. Nothing may be appended at the same time."""
        with self._lock:
            self._rebuild(reason)

    def create(self) -> None:
        """Recreates the file, empty and at its maximum size."""
        self.reset()
        self._preallocate()

    def reset(self) -> None:
        """Removes all entries, and makes the file where there is none."""
        with self._lock:
            self._file.creating().truncate(0)
            self._expected = None
            self._checksum = 0
            self.is_vouched_for = True
            self._entry_count = 0
            self._written_bytes = 0
            self._has_slack = False
            self._unsynced = True
            self._pending.clear()
            self._forget_columns()
            self._last_key = 0
            self._last_value = 0

    def trim(self) -> None:
        """Writes pending entries and truncates the file to its entries."""
        self._write_pending()
        with self._lock:
            if self._has_slack:
                self._file.writing().truncate(self._written_bytes)
                self._has_slack = False
                self._unsynced = True

    def flush(self) -> None:
        """Returns once all entries are on the disk."""
        self._write_pending()
        if self._unsynced:
            self._unsynced = False
            self._file.writing().sync()

    def close(self) -> None:
        """Writes and syncs what this process has changed, and lets go of the file and the memory."""
        self.trim()
        self.flush()
        self.release()

    def release(self) -> None:
        """Lets go of file and memory and writes nothing: the disk may have failed."""
        self._forget_columns()
        self._file.close()

    def evict(self) -> None:
        self._columns = None

    def rename(self, path: str) -> None:
        try:
            self._file.rename(path)
        except NoSuchFile:
            self._file.path = path

    def relocate(self, directory: str) -> None:
        self._file.relocate(directory)

    def remove(self) -> None:
        """Removes the file; nothing is written after that."""
        with self._lock:
            self._forget_columns()
            self._pending.clear()
            self._expected = None
            self._checksum = 0
            self._entry_count = 0
            self._written_bytes = 0
            self._has_slack = False
            self._unsynced = False
            self._file.remove()

    def _relative(self, offset: int) -> int:
        relative_offset = offset - self.base_offset
        assert 0 <= relative_offset <= RELATIVE_OFFSET_MAX, (offset, self.path)
        return relative_offset

    def _slot_by_key(self, key: int) -> int:
        """The slot of the largest key that is not above the one asked for; -1 when there is none."""
        return bisect_right(self._loaded().keys, key) - 1

    def _slot_by_value(self, value: int) -> int:
        """The slot of the largest value that is not above the one asked for; -1 when there is none."""
        return bisect_right(self._loaded().values, value) - 1

    def _first_slot_by_value(self, value: int) -> int:
        """The slot of the smallest value that is not below the one asked for; entry_count when there is none."""
        return bisect_left(self._loaded().values, value)

    def _append(self, key: int, value: int) -> None:
        # The caller checks is_full; an index that has outgrown a limit which was lowered since is still good.
        assert self._entry_count >= 0
        assert self._expected is None, self.path
        with self._lock:
            self._pending.extend(self._entry.pack(key, value))
            self._entry_count += 1
            self._last_key = key
            self._last_value = value
            columns = self._columns
            if columns is not None:
                columns.keys.append(key)
                columns.values.append(value)
        if len(self._pending) >= _PENDING_BYTES_MAX:
            self._write_pending()
            if columns is not None:
                self._fs.index_memory.admit(self, self._written_bytes)

    def _truncate_to_count(self, entry_count: int) -> None:
        if entry_count >= self.entry_count:
            return
        columns = self._loaded()
        with self._lock:
            end = entry_count * self.entry_bytes
            if end < self._written_bytes:
                self._file.writing().truncate(end)
                self._written_bytes = end
                self._checksum = _UNKNOWN
                self._has_slack = False
                self._unsynced = True
            del self._pending[end - self._written_bytes :]
            self._entry_count = entry_count
            if entry_count:
                self._last_key = columns.keys[entry_count - 1]
                self._last_value = columns.values[entry_count - 1]
            self._forget_columns()

    def _loaded(self) -> Columns:
        columns = self._columns
        if columns is not None:
            self.recently_used = True
            return columns
        with self._lock:
            if self._expected is None and self._entry_count >= 0:
                columns = split_columns(self._read() + self._pending, self.entry_bytes)
            else:
                columns = self._first_columns()
            self._columns = columns
            size_bytes = self._written_bytes + len(self._pending)
        self._fs.index_memory.admit(self, size_bytes)
        return columns

    def _read(self) -> bytes:
        if not self._written_bytes:
            return b""
        data = self._file.reading().pread(self._written_bytes, 0)
        if len(data) != self._written_bytes:
            raise CorruptIndex(
                f"index {self.path} has {len(data)} bytes of the {self._written_bytes} that it had"
            )
        return data

    def _first_columns(self) -> Columns:
        """Reads the file for the first time: it holds what it should, or it is rebuilt."""
        try:
            size_bytes = self._file.size_bytes()
            data = self._file.reading().pread(size_bytes, 0) if size_bytes else b""
        except NoSuchFile:
            data = b""
        expected = self._expected
        checksum = crc32c(data)
        if expected is not None:
            if len(data) != expected.size_bytes or checksum != expected.checksum:
                return self._rebuild(
                    f"it should have {expected.size_bytes} bytes with the checksum {expected.checksum:08x}, and has"
                    f" {len(data)} with {checksum:08x}"
                )
            self._expected = None
            columns = split_columns(data, self.entry_bytes)
            self._take(len(data), checksum, columns)
            return columns
        whole_bytes = len(data) // self.entry_bytes * self.entry_bytes
        columns = split_columns(data[:whole_bytes], self.entry_bytes)
        if whole_bytes < len(data):
            return self._rebuild(f"its {len(data)} bytes are not a number of entries of {self.entry_bytes}")
        if self._log is not None and not self._is_plausible(columns, self._log.size_bytes()):
            return self._rebuild("its entries do not rise, or lie outside the log")
        self._take(whole_bytes, checksum, columns)
        return columns

    def _is_plausible(self, columns: Columns, log_bytes: int) -> bool:
        raise NotImplementedError

    def _rebuild(self, reason: str) -> Columns:
        if self._log is None:
            raise CorruptIndex(f"index {self.path} is damaged: {reason}")
        entries: list[bytes] = []
        for key, value in self._entries_of(self._log):
            if len(entries) < self.max_entries:
                entries.append(self._entry.pack(key, value))
        data = b"".join(entries)
        # No later flush looks at a segment that is flushed, and half of an index would be no hint that it is one.
        self._file.close()
        self._fs.write_atomically(self.path, data)
        columns = split_columns(data, self.entry_bytes)
        self._forget_columns()
        self._pending.clear()
        self._take(len(data), crc32c(data), columns)
        self._expected = None
        self._unsynced = False
        self.is_vouched_for = True
        logger.warning("index %s has been rebuilt with %d entries: %s", self.path, len(entries), reason)
        return columns

    def _entries_of(self, log: IndexedLog) -> Iterator[tuple[int, int]]:
        """The content of the index of a log."""
        raise NotImplementedError

    def _take(self, size_bytes: int, checksum: int, columns: Columns) -> None:
        self._written_bytes = size_bytes
        self._checksum = checksum
        self._entry_count = len(columns.keys)
        self._has_slack = False
        if self._entry_count:
            self._last_key = columns.keys[-1]
            self._last_value = columns.values[-1]

    def _forget_columns(self) -> None:
        if self._columns is not None:
            self._columns = None
            self._fs.index_memory.discard(self)

    def _write_pending(self) -> None:
        with self._lock:
            if not self._pending:
                return
            if not self._has_slack:
                self._preallocate()
            data = bytes(self._pending)
            self._file.creating().pwrite(data, self._written_bytes)
            self._written_bytes += len(data)
            if self._checksum >= 0:
                self._checksum = crc32c(data, self._checksum)
            self._unsynced = True
            self._pending.clear()

    def _preallocate(self) -> None:
        needed_bytes = self._written_bytes + len(self._pending)
        self._file.creating().truncate(max(needed_bytes, self.max_entries * self.entry_bytes))
        self._has_slack = True
        self._unsynced = True
