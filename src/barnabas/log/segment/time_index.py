"""The time index of a segment: the offset from which to look for a timestamp.

    | timestamp int64 | relative offset int32 |  …

No record up to the entry's offset (relative to the segment's base offset) has a later timestamp than the entry: a
record with a later one comes after it. Timestamps increase from entry to entry. The last slot is reserved for the
segment's largest timestamp, which is added when the segment is rolled or closed, and which retention uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from barnabas.log.file_system import FileSystem
from barnabas.log.segment.index_columns import Columns, rises
from barnabas.log.segment.indexed_log import IndexedLog
from barnabas.log.segment.sparse_index import CorruptIndex, SparseIndex
from barnabas.model import NO_TIMESTAMP, Offset, TimestampMs

ENTRY: Final = Struct(
    ">"
    "q"  # timestamp
    "i"  # relative offset
)
ENTRY_BYTES: Final = 12
assert ENTRY.size == ENTRY_BYTES


class TimestampOffset(NamedTuple):
    timestamp: TimestampMs
    offset: Offset


class TimeIndex(SparseIndex):
    __slots__ = ()

    def __init__(
        self, fs: FileSystem, path: str, base_offset: int, max_bytes: int, log: IndexedLog | None = None
    ) -> None:
        super().__init__(fs, path, base_offset, max_bytes, ENTRY, log)

    @property
    def is_full(self) -> bool:
        return self.entry_count >= self.max_entries - 1

    @property
    def last_entry(self) -> TimestampOffset:
        """(NO_TIMESTAMP, base offset) when there is none."""
        if self.entry_count == 0:
            return TimestampOffset(NO_TIMESTAMP, Offset(self.base_offset))
        return TimestampOffset(TimestampMs(self._last_key), Offset(self.base_offset + self._last_value))

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if the timestamp is later than that of the last one."""
        if self.entry_count:
            if offset < self.base_offset + self._last_value or timestamp < self._last_key:
                raise CorruptIndex(
                    f"timestamp {timestamp} at offset {offset} is to go into index {self.path} after"
                    f" {self._last_key} at {self.base_offset + self._last_value}, which is later"
                )
            if timestamp == self._last_key:
                return
        elif timestamp <= NO_TIMESTAMP:
            return
        self._append(timestamp, self._relative(offset))

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The latest entry not after the timestamp; (NO_TIMESTAMP, base offset) when there is none."""
        slot = self._slot_by_key(timestamp)
        return self.entry(slot) if slot >= 0 else TimestampOffset(NO_TIMESTAMP, Offset(self.base_offset))

    def entry(self, slot: int) -> TimestampOffset:
        columns = self._loaded()
        return TimestampOffset(
            TimestampMs(columns.keys[slot]), Offset(self.base_offset + columns.values[slot])
        )

    def entries(self) -> list[TimestampOffset]:
        return [self.entry(slot) for slot in range(len(self._loaded().keys))]

    def truncate_to(self, offset: int) -> None:
        """Removes the entries whose offset is the given one or a later one."""
        self._truncate_to_count(self._slot_by_value(offset - self.base_offset - 1) + 1)

    def _is_plausible(self, columns: Columns, log_bytes: int) -> bool:
        if not columns.keys:
            return True
        return columns.values[0] >= 0 and log_bytes > 0 and rises(columns.keys) and rises(columns.values)

    def _entries_of(self, log: IndexedLog) -> Iterator[tuple[int, int]]:
        indexed_bytes = 0
        largest, noted = NO_TIMESTAMP, NO_TIMESTAMP
        offset = self.base_offset
        count = 0
        for position, header in log.batches():
            if header.max_timestamp > largest:
                largest, offset = header.max_timestamp, header.last_offset
            if position - indexed_bytes > log.interval_bytes:
                indexed_bytes = position
                if largest > noted and count < self.max_entries - 1:
                    noted = largest
                    count += 1
                    yield largest, offset - self.base_offset
        if largest > noted:
            yield largest, offset - self.base_offset
