"""ListOffsetsResponse: versions 0-11, flexible 6+.

Written by `make messages` from schemas/ListOffsetsResponse.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


@mypyc_attr(acyclic=True)
class ListOffsetsPartitionResponse:
    __slots__ = (
        "partition_index",
        "error_code",
        "old_style_offsets",
        "timestamp",
        "offset",
        "leader_epoch",
        "unknown_tagged_fields",
    )
    partition_index: int
    error_code: int
    old_style_offsets: list[int]
    timestamp: int
    offset: int
    leader_epoch: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        old_style_offsets: list[int] = EMPTY,
        timestamp: int = -1,
        offset: int = -1,
        leader_epoch: int = -1,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.old_style_offsets = [] if old_style_offsets is EMPTY else old_style_offsets
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class ListOffsetsTopicResponse:
    __slots__ = (
        "name",
        "partitions",
        "unknown_tagged_fields",
    )
    name: str
    partitions: list[ListOffsetsPartitionResponse]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ListOffsetsPartitionResponse] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class ListOffsetsResponse:
    __slots__ = (
        "throttle_time_ms",
        "topics",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        topics: list[ListOffsetsTopicResponse] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
