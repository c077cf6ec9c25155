"""A piece of a search, for one process, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from barnabas.console.search.chunks import Bounds
from barnabas.log.reader.partition_files import SegmentFile
from barnabas.log.reader.transactions import Aborted


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Work for one process: a range of offsets, in a part of a file if it is local."""

    partition: int
    bounds: Bounds
    size_bytes: int
    segment: SegmentFile | None = None
    start_position: int = 0
    end_position: int = 0
    aborted: tuple[Aborted, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def piece_of(form: Mapping[str, Any]) -> Piece:
    """The piece of a JSON form."""
    fields = dict(form)
    fields["bounds"] = Bounds(**fields["bounds"])
    if fields["segment"] is not None:
        fields["segment"] = SegmentFile(**fields["segment"])
    if fields["aborted"] is not None:
        fields["aborted"] = tuple(Aborted(*each) for each in fields["aborted"])
    return Piece(**fields)
