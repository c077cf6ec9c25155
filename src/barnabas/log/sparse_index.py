"""What the offset index and the time index of a segment have in common.

Both are files of big-endian entries, a key and a 4-byte value each, in which keys and values rise:

    offset index     | relative offset int32 | position int32        |
    time index       | timestamp int64               | relative offset int32 |

Only every few thousand bytes of log get an entry. Kafka maps these files into memory; here they are read and written
with pread and pwrite, since a mapped page that a failing disk cannot bring in kills the whole process (SIGBUS),
where a failed pread takes one directory offline. Searches run over two arrays, the columns of the file, which are
loaded at the first search and kept as long as `FileSystem.index_memory` has room.

The file of an active segment is extended to the largest size that the index may get, and cut to its entries when
the segment is rolled or closed. New entries are gathered and written a few at a time. There is no checksum: what was
not flushed before a crash is rebuilt from the log.

Entries are appended and removed by one thread at a time. Any thread may search or flush meanwhile.
"""

from __future__ import annotations

import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final

from barnabas.errors import KafkaStorageError
from barnabas.log.file_system import FileSystem, NoSuchFile
from barnabas.log.segment_file import SegmentFile
from barnabas.primitives.second_chance import Resident

VALUE_BYTES: Final = 4
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1

_PENDING_BYTES_MAX: Final = 1536
_UNKNOWN: Final = -1


class CorruptIndex(KafkaStorageError):
    """An index file whose content cannot be what was written; it is to be rebuilt from the log."""


class Columns:
    """The entries of an index, keys and values apart."""

    __slots__ = ("keys", "values")

    def __init__(self, keys: array[int], values: array[int]) -> None:
        self.keys = keys
        self.values = values


class SparseIndex(Resident):
    """Entries of a key of 4 or 8 bytes and a value; what they mean, the two kinds of index know."""

    __slots__ = (
        "_columns",
        "_entry",
        "_entry_count",
        "_file",
        "_fs",
        "_has_slack",
        "_last_key",
        "_last_value",
        "_lock",
        "_pending",
        "_unsynced",
        "_written_bytes",
        "base_offset",
        "entry_bytes",
        "max_entries",
    )

    def __init__(self, fs: FileSystem, path: str, base_offset: int, max_bytes: int, entry: Struct) -> None:
        super().__init__()
        self._fs = fs
        self._file = SegmentFile(fs, path)
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
            self._measure()
        return self._entry_count

    @property
    def size_bytes(self) -> int:
        """What the entries take, without what is preallocated after them."""
        return self.entry_count * self.entry_bytes

    def create(self) -> None:
        """Makes the file anew, empty and as large as it may get."""
        self.reset()
        self._preallocate()

    def reset(self) -> None:
        """Removes all entries, and makes the file where there is none."""
        with self._lock:
            self._file.creating().truncate(0)
            self._entry_count = 0
            self._written_bytes = 0
            self._has_slack = False
            self._unsynced = True
            self._pending.clear()
            self._forget_columns()
            self._last_key = 0
            self._last_value = 0

    def trim(self) -> None:
        """Writes what is pending and cuts the file to its entries."""
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
            self._entry_count = 0
            self._written_bytes = 0
            self._has_slack = False
            self._unsynced = False
            self._file.remove()

    def _check_size(self) -> None:
        """Raises CorruptIndex unless the file is a whole number of entries long."""
        file_bytes = self._file.size_bytes()
        if file_bytes % self.entry_bytes:
            raise CorruptIndex(
                f"index {self.path} has {file_bytes} bytes, which is not a multiple of {self.entry_bytes}"
            )

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
        # Whoever appends looks at is_full; an index that has outgrown a limit which was lowered since is still good.
        assert self._entry_count >= 0
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
        if self._entry_count < 0:
            self._measure()
        with self._lock:
            data = b""
            if self._written_bytes:
                data = self._file.reading().pread(self._written_bytes, 0)
                if len(data) != self._written_bytes:
                    raise CorruptIndex(
                        f"index {self.path} has {len(data)} bytes of the {self._written_bytes} that it had"
                    )
            data += self._pending
            columns = split_columns(data, self.entry_bytes)
            self._columns = columns
        self._fs.index_memory.admit(self, len(data))
        return columns

    def _forget_columns(self) -> None:
        if self._columns is not None:
            self._columns = None
            self._fs.index_memory.discard(self)

    def _measure(self) -> None:
        """Reads how many entries there are and the last one; a file that is not there has none.

        As Kafka does it, whatever the file holds is taken for entries: one that a crash left at its preallocated
        size is rebuilt before it is used.
        """
        with self._lock:
            try:
                file_bytes = self._file.size_bytes()
            except NoSuchFile:
                file_bytes = 0
            entry_count = file_bytes // self.entry_bytes
            self._written_bytes = entry_count * self.entry_bytes
            self._has_slack = self._written_bytes < file_bytes
            if entry_count:
                last = self._file.reading().pread(self.entry_bytes, self._written_bytes - self.entry_bytes)
                if len(last) != self.entry_bytes:
                    raise CorruptIndex(f"index {self.path} was cut while it was read")
                self._last_key, self._last_value = self._entry.unpack(last)
            self._entry_count = entry_count

    def _write_pending(self) -> None:
        with self._lock:
            if not self._pending:
                return
            if not self._has_slack:
                self._preallocate()
            self._file.creating().pwrite(bytes(self._pending), self._written_bytes)
            self._written_bytes += len(self._pending)
            self._unsynced = True
            self._pending.clear()

    def _preallocate(self) -> None:
        needed_bytes = self._written_bytes + len(self._pending)
        self._file.creating().truncate(max(needed_bytes, self.max_entries * self.entry_bytes))
        self._has_slack = True
        self._unsynced = True


def split_columns(data: bytes, entry_bytes: int) -> Columns:
    """The columns of an index file, at the speed of copying: a 4-byte word is the unit of both kinds of entry."""
    words = array("i")
    assert words.itemsize == VALUE_BYTES
    words.frombytes(data)
    little_endian = sys.byteorder == "little"
    if little_endian:
        words.byteswap()
    stride = entry_bytes // VALUE_BYTES
    values = words[stride - 1 :: stride]
    if stride == 2:
        return Columns(words[::2], values)
    halves = array("i", bytes(len(values) * 8))
    halves[1 if little_endian else 0 :: 2] = words[::3]
    halves[0 if little_endian else 1 :: 2] = words[1::3]
    keys = array("q")
    keys.frombytes(halves.tobytes())
    return Columns(keys, values)
