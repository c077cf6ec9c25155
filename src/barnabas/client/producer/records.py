"""The values that a producer takes and returns."""

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
    """A record as it was passed to `send`, before serialization: interceptors see it and may replace it."""

    topic: str
    value: object
    key: object
    partition: int | None
    timestamp_ms: int | None
    headers: HeadersLike | None


class OffsetToCommit(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class SharedTransaction(NamedTuple):
    """A transaction that producers in other processes may write to; the producer that began it ends it."""

    producer_id: int
    producer_epoch: int
    is_v2: bool


class GroupMetadata(NamedTuple):
    """The group, and its member, that commits offsets in a transaction; see `Consumer.group_metadata()`."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
