"""What a segment answers: made for every fetch, so plain and small."""

from __future__ import annotations

from barnabas.primitives.file_slice import FileSlice


class EntryPosition:
    """Where an entry stands in a log file."""

    __slots__ = ("position", "size_bytes")

    def __init__(self, position: int, size_bytes: int) -> None:
        self.position = position
        self.size_bytes = size_bytes

    def __repr__(self) -> str:
        return f"EntryPosition({self.size_bytes} bytes at {self.position})"


class SegmentRead:
    """What a segment has from an offset on: a part of its file that begins with the batch that has the offset."""

    __slots__ = ("first_entry_is_cut", "position", "records")

    def __init__(self, records: FileSlice, position: int, first_entry_is_cut: bool) -> None:
        self.records = records
        self.position = position
        self.first_entry_is_cut = first_entry_is_cut
