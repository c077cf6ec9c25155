"""What clients hand in and get back about records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

HeadersLike: TypeAlias = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Headers as people write them: pairs, whose names may repeat, or a mapping."""


class RecordMetadata(NamedTuple):
    """Where a record has gone. The offset is -1 where the broker was not asked (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class OutgoingRecord(NamedTuple):
    """A record as it was handed to `send`, before it is serialized: what interceptors see and may replace."""

    topic: str
    value: object
    key: object
    partition: int | None
    timestamp_ms: int | None
    headers: HeadersLike | None
