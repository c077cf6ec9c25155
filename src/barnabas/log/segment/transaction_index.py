"""The transaction index of a segment: the aborted transactions whose markers are in the segment.

    | version int16 | producer id int64 | first offset int64 | last offset int64 | last stable offset int64 |  …

The first offset may lie in an earlier segment; the last is the marker's. The last stable offset is what it was after
the abort: once an entry has one at or behind the end of a read, no later transaction can matter to that read.
Entries are in order of their last offsets. There is no file as long as there is no entry.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from barnabas.log.file_system import FileSystem, NoSuchFile
from barnabas.log.segment.file import SegmentFile
from barnabas.log.segment.sparse_index import CorruptIndex
from barnabas.log.side_files import FileDigest, digest_of
from barnabas.model import Offset, ProducerId
from barnabas.primitives.second_chance import Resident

ENTRY: Final = Struct(
    ">"
    "h"  # version
    "q"  # producer id
    "q"  # first offset
    "q"  # last offset
    "q"  # last stable offset
)
ENTRY_BYTES: Final = 34
assert ENTRY.size == ENTRY_BYTES

VERSION: Final = 0

_last_offset: Final = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class AbortedTransactions(NamedTuple):
    """Those that a search found; when it is not complete, the next segment may have more."""

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex(Resident):
    __slots__ = ("_digest", "_entries", "_exists", "_expected", "_file", "_fs", "_unsynced", "base_offset")

    def __init__(self, fs: FileSystem, path: str, base_offset: int, *, exists: bool) -> None:
        super().__init__()
        self._fs = fs
        self._file = SegmentFile(fs, path)
        self._exists = exists
        self._entries: list[AbortedTransaction] | None = None
        self._unsynced = False
        # The expected content of the file, until it is first read; and its digest, if that is known.
        self._expected: FileDigest | None = None
        self._digest: FileDigest | None = None
        self.base_offset = base_offset

    def expect(self, digest: FileDigest) -> None:
        """Takes over what the list of side files says of the file; `sanity_check` compares."""
        self._expected = digest

    def digest(self) -> FileDigest:
        """The digest of the existing file."""
        if self._digest is None:
            self._digest = digest_of(b"".join([ENTRY.pack(VERSION, *entry) for entry in self.entries()]))
        return self._digest

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def exists(self) -> bool:
        return self._exists

    def append(self, transaction: AbortedTransaction) -> None:
        entries = self.entries()
        assert not entries or entries[-1].last_offset < transaction.last_offset, (transaction, self.path)
        file = self._file.creating()
        self._exists = True
        file.pwrite(ENTRY.pack(VERSION, *transaction), len(entries) * ENTRY_BYTES)
        self._unsynced = True
        self._digest = None
        entries.append(transaction)

    def entries(self) -> list[AbortedTransaction]:
        """All of them; the list is the index's own. Raises CorruptIndex for an entry of an unknown version."""
        entries = self._entries
        if entries is not None:
            self.recently_used = True
            return entries
        entries = []
        if self._exists:
            try:
                file = self._file.reading()
            except NoSuchFile:
                self._exists = False
            else:
                # An incomplete last entry after a crash is ignored.
                data = file.pread(file.size_bytes(), 0)
                self._check(data)
                data = data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]
                for version, producer_id, first_offset, last_offset, last_stable_offset in ENTRY.iter_unpack(
                    data
                ):
                    if version != VERSION:
                        raise CorruptIndex(
                            f"entry {len(entries)} of transaction index {self.path} has the unknown version {version}"
                        )
                    entries.append(
                        AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset)
                    )
        self._entries = entries
        if entries:
            self._fs.index_memory.admit(self, len(entries) * ENTRY_BYTES)
        return entries

    def collect(self, start_offset: int, end_offset: int) -> AbortedTransactions:
        """The aborted transactions that have records in [start offset, end offset)."""
        found: list[AbortedTransaction] = []
        if not self._exists:
            return AbortedTransactions(found, False)
        entries = self.entries()
        # Those before have ended before the read begins.
        first_slot = bisect_left(entries, start_offset, key=_last_offset)
        for slot in range(first_slot, len(entries)):
            transaction = entries[slot]
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return AbortedTransactions(found, True)
        return AbortedTransactions(found, False)

    def truncate_to(self, offset: int) -> None:
        """Removes the transactions that ended at the offset or later."""
        if not self._exists:
            return
        entries = self.entries()
        kept = sum(transaction.last_offset < offset for transaction in entries)
        if kept < len(entries):
            self._file.writing().truncate(kept * ENTRY_BYTES)
            self._unsynced = True
            self._digest = None
            del entries[kept:]

    def reset(self) -> None:
        """Removes all entries; an existing file stays, empty."""
        self._forget_entries()
        self._expected = None
        self._digest = None
        if self._exists and self._fs.exists(self.path):
            self._file.writing().truncate(0)
            self._unsynced = True

    def sanity_check(self) -> None:
        """Raises CorruptIndex when the file is obviously wrong."""
        for transaction in self.entries():
            if transaction.last_offset < self.base_offset:
                raise CorruptIndex(
                    f"{transaction} in transaction index {self.path} ends before base offset {self.base_offset}"
                )

    def flush(self) -> None:
        if self._unsynced:
            self._unsynced = False
            self._file.writing().sync()

    def close(self) -> None:
        self.flush()
        self.release()

    def release(self) -> None:
        """Lets go of file and memory and writes nothing: the disk may have failed."""
        self._forget_entries()
        self._file.close()

    def evict(self) -> None:
        self._entries = None

    def rename(self, path: str) -> None:
        try:
            self._file.rename(path)
        except NoSuchFile:
            self._exists = False
            self._file.path = path

    def relocate(self, directory: str) -> None:
        self._file.relocate(directory)

    def remove(self) -> None:
        """Removes the file; nothing is written after that."""
        self._forget_entries()
        self._exists = False
        self._unsynced = False
        self._file.remove()

    def _check(self, data: bytes) -> None:
        """Compares the file with its expected digest when it is first read."""
        if self._expected is not None:
            found = digest_of(data)
            if found != self._expected:
                raise CorruptIndex(f"transaction index {self.path} should be {self._expected} and is {found}")
            self._digest = found
            self._expected = None

    def _forget_entries(self) -> None:
        if self._entries is not None:
            self._entries = None
            self._fs.index_memory.discard(self)
