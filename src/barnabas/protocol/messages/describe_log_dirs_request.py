"""DescribeLogDirsRequest: versions 0-5, flexible 2+.

Written by `make messages` from schemas/DescribeLogDirsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class DescribableLogDirTopic:
    __slots__ = (
        "topic",
        "partitions",
        "unknown_tagged_fields",
    )
    topic: str
    partitions: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DescribeLogDirsRequest:
    __slots__ = (
        "topics",
        "unknown_tagged_fields",
    )
    topics: list[DescribableLogDirTopic] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topics: list[DescribableLogDirTopic] | None = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
