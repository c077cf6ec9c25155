"""DescribeTopicPartitionsRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/DescribeTopicPartitionsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class TopicRequest:
    __slots__ = (
        "name",
        "unknown_tagged_fields",
    )
    name: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class Cursor:
    __slots__ = (
        "topic_name",
        "partition_index",
        "unknown_tagged_fields",
    )
    topic_name: str
    partition_index: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        partition_index: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.partition_index = partition_index
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DescribeTopicPartitionsRequest:
    __slots__ = (
        "topics",
        "response_partition_limit",
        "cursor",
        "unknown_tagged_fields",
    )
    topics: list[TopicRequest]
    response_partition_limit: int
    cursor: Cursor | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topics: list[TopicRequest] = EMPTY,
        response_partition_limit: int = 2000,
        cursor: Cursor | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.response_partition_limit = response_partition_limit
        self.cursor = cursor
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
