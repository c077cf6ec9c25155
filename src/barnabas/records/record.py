"""A record as the program sees it, of whichever format its batch is."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from barnabas.errors import InvalidRecord
from barnabas.model import Offset, TimestampMs
from barnabas.records.header import BatchHeader

Headers = tuple[tuple[str, bytes | None], ...]

NO_HEADERS: Final[Headers] = ()


class MalformedRecord(InvalidRecord):
    """A record whose bytes contradict themselves."""


def contradiction(what: str, number: int, index: int, header: BatchHeader) -> MalformedRecord:
    return MalformedRecord(
        f"{what} {number} in record {index} of the batch at offset {header.base_offset} contradicts what is around it"
    )


@mypyc_attr(acyclic=True)
class Record:
    """A record with its place in the partition; `sequence` is -1 unless its producer is idempotent."""

    __slots__ = ("headers", "key", "offset", "sequence", "timestamp", "value")

    def __init__(
        self,
        offset: Offset,
        timestamp: TimestampMs,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        sequence: int = -1,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.sequence = sequence

    def __reduce__(self) -> tuple[object, ...]:
        """For pickle and copy: without it, a compiled class is created without the arguments that it needs."""
        return Record, (self.offset, self.timestamp, self.key, self.value, self.headers, self.sequence)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and self.headers == other.headers
            and self.sequence == other.sequence
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.timestamp, self.key, self.value))

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, value={self.value!r},"
            f" headers={self.headers!r}, sequence={self.sequence})"
        )
