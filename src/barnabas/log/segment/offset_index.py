"""The offset index of a segment: the position in the log file at which to look for an offset.

    | relative offset int32 | position int32 |  …

The batch that has the entry's offset (relative to the segment's base offset) as its last offset starts at the position.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from barnabas.log.file_system import FileSystem
from barnabas.log.segment.index_columns import Columns, rises
from barnabas.log.segment.indexed_log import IndexedLog
from barnabas.log.segment.sparse_index import RELATIVE_OFFSET_MAX, CorruptIndex, SparseIndex
from barnabas.model import FilePosition, Offset

ENTRY: Final = Struct(
    ">"
    "i"  # relative offset
    "i"  # position
)
ENTRY_BYTES: Final = 8
assert ENTRY.size == ENTRY_BYTES

# The range of an int32 position.
SEGMENT_BYTES_MAX: Final = (1 << 31) - 1


class OffsetPosition(NamedTuple):
    offset: Offset
    position: FilePosition


class OffsetIndex(SparseIndex):
    __slots__ = ()

    def __init__(
        self, fs: FileSystem, path: str, base_offset: int, max_bytes: int, log: IndexedLog | None = None
    ) -> None:
        super().__init__(fs, path, base_offset, max_bytes, ENTRY, log)

    @property
    def is_full(self) -> bool:
        return self.entry_count >= self.max_entries

    @property
    def last_offset(self) -> Offset:
        """That of the last entry; the base offset when there is none."""
        return Offset(self.base_offset + (self._last_key if self.entry_count else 0))

    @property
    def last_entry(self) -> OffsetPosition:
        """(base offset, 0) when there is none."""
        if self.entry_count == 0:
            return OffsetPosition(Offset(self.base_offset), FilePosition(0))
        return OffsetPosition(Offset(self.base_offset + self._last_key), FilePosition(self._last_value))

    def can_append_offset(self, offset: int) -> bool:
        return 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def append(self, offset: int, position: int) -> None:
        relative_offset = self._relative(offset)
        if self.entry_count and relative_offset <= self._last_key:
            raise CorruptIndex(
                f"offset {offset} is to go into index {self.path} after {self.last_offset}, which is not below it"
            )
        self._append(relative_offset, position)

    def position_for(self, offset: int) -> int:
        """From where on the log is to be scanned for the offset: the position of the largest entry not above it."""
        return self.positions_around(offset)[0]

    def position_before(self, position: int) -> int:
        """The largest position of an entry that is not above the given one; 0 when there is none."""
        slot = self._slot_by_value(position)
        return 0 if slot < 0 else self._loaded().values[slot]

    def positions_around(self, offset: int) -> tuple[int, int]:
        """The positions of the largest entry not above the offset and of the next; 0 and SEGMENT_BYTES_MAX without."""
        columns = self._loaded()
        values = columns.values
        slot = bisect_right(columns.keys, offset - self.base_offset)
        return (values[slot - 1] if slot else 0, values[slot] if slot < len(values) else SEGMENT_BYTES_MAX)

    def lookup(self, offset: int) -> OffsetPosition:
        """The largest entry not above the offset; (base offset, 0) when there is none."""
        slot = self._slot_by_key(offset - self.base_offset)
        return self.entry(slot) if slot >= 0 else OffsetPosition(Offset(self.base_offset), FilePosition(0))

    def upper_bound(self, position: int, size_bytes: int) -> Offset | None:
        """The offset of an entry entirely behind a read of that many bytes at the position, if there is one.

        None also if the entries are not verified: a wrong one would hide aborted transactions.
        """
        slot = self._first_slot_by_value(position + size_bytes)
        if not self.is_vouched_for:
            return None
        return self.entry(slot).offset if slot < self.entry_count else None

    def entry(self, slot: int) -> OffsetPosition:
        columns = self._loaded()
        return OffsetPosition(
            Offset(self.base_offset + columns.keys[slot]), FilePosition(columns.values[slot])
        )

    def entries(self) -> list[OffsetPosition]:
        return [self.entry(slot) for slot in range(len(self._loaded().keys))]

    def truncate_to(self, offset: int) -> None:
        """Removes the entries from the offset on."""
        self._truncate_to_count(self._slot_by_key(offset - self.base_offset - 1) + 1)

    def _is_plausible(self, columns: Columns, log_bytes: int) -> bool:
        if not columns.keys:
            return True
        return (
            columns.keys[0] >= 0
            and columns.values[0] >= 0
            and columns.values[-1] < log_bytes
            and rises(columns.keys)
            and rises(columns.values)
        )

    def _entries_of(self, log: IndexedLog) -> Iterator[tuple[int, int]]:
        indexed_bytes = 0
        for position, header in log.batches():
            if position - indexed_bytes > log.interval_bytes and self.can_append_offset(header.last_offset):
                yield header.last_offset - self.base_offset, position
                indexed_bytes = position
