"""Results of a segment: created for every fetch, so plain and small."""

from __future__ import annotations

from barnabas.primitives.file_slice import FileSlice


class EntryPosition:
    """The position of an entry in a log file."""

    __slots__ = ("position", "size_bytes")

    def __init__(self, position: int, size_bytes: int) -> None:
        self.position = position
        self.size_bytes = size_bytes

    def __repr__(self) -> str:
        return f"EntryPosition({self.size_bytes} bytes at {self.position})"


class SegmentRead:
    """The data of a segment from an offset: a part of its file that starts with the batch of the offset."""

    __slots__ = ("first_entry_is_cut", "position", "records")

    def __init__(self, records: FileSlice, position: int, first_entry_is_cut: bool) -> None:
        self.records = records
        self.position = position
        self.first_entry_is_cut = first_entry_is_cut
