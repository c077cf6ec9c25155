"""AlterShareGroupOffsetsRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/AlterShareGroupOffsetsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class AlterShareGroupOffsetsRequestPartition:
    __slots__ = (
        "partition_index",
        "start_offset",
        "unknown_tagged_fields",
    )
    partition_index: int
    start_offset: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition_index: int = 0,
        start_offset: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition_index = partition_index
        self.start_offset = start_offset
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterShareGroupOffsetsRequestTopic:
    __slots__ = (
        "topic_name",
        "partitions",
        "unknown_tagged_fields",
    )
    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[AlterShareGroupOffsetsRequestPartition] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterShareGroupOffsetsRequest:
    __slots__ = (
        "group_id",
        "topics",
        "unknown_tagged_fields",
    )
    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[AlterShareGroupOffsetsRequestTopic] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
