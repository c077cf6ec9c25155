"""DescribeProducersRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/DescribeProducersRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class TopicRequest:
    __slots__ = (
        "name",
        "partition_indexes",
        "unknown_tagged_fields",
    )
    name: str
    partition_indexes: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DescribeProducersRequest:
    __slots__ = (
        "topics",
        "unknown_tagged_fields",
    )
    topics: list[TopicRequest]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topics: list[TopicRequest] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
