"""The segments of a partition's log, in order of their base offsets.

The list is never changed but replaced, so that a reader in any thread holds a set of segments that belonged together
at one moment, and needs no lock. Replacing it costs a copy, which a roll or a deletion can bear.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from barnabas.log.segment.segment import Segment


class Segments:
    __slots__ = ("all", "base_offsets")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self.all: list[Segment] = sorted(segments, key=_base_offset)
        self.base_offsets: list[int] = [segment.base_offset for segment in self.all]

    def __len__(self) -> int:
        return len(self.all)

    @property
    def active(self) -> Segment:
        """The last one, which takes the appends."""
        return self.all[-1]

    @property
    def size_bytes(self) -> int:
        return sum([segment.size_bytes for segment in self.all])

    def floor_index(self, offset: int) -> int:
        """The index of the last segment whose base offset is not above the offset; -1 if all are above."""
        return bisect_right(self.base_offsets, offset) - 1

    def floor(self, offset: int) -> Segment | None:
        index = self.floor_index(offset)
        return None if index < 0 else self.all[index]

    def holding(self, start_offset: int, end_offset: int) -> list[Segment]:
        """The segments that may hold offsets in [start offset, end offset)."""
        return self.all[max(self.floor_index(start_offset), 0) : bisect_left(self.base_offsets, end_offset)]

    def base_offset_after(self, base_offset: int) -> int | None:
        """The base offset of the segment behind the one with this base offset."""
        index = bisect_right(self.base_offsets, base_offset)
        return self.base_offsets[index] if index < len(self.base_offsets) else None

    def adding(self, segment: Segment) -> Segments:
        return self.replacing([], [segment])

    def without(self, removed: Iterable[Segment]) -> Segments:
        return self.replacing(removed, [])

    def replacing(self, old: Iterable[Segment], new: Iterable[Segment]) -> Segments:
        gone = {segment.base_offset for segment in old}
        return Segments([*[segment for segment in self.all if segment.base_offset not in gone], *new])


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
