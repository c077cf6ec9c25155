"""ShareGroupPartitionMetadataValue: versions 0, flexible 0+.

Written by `make messages` from schemas/ShareGroupPartitionMetadataValue.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class TopicPartitionsInfo:
    __slots__ = (
        "topic_id",
        "topic_name",
        "partitions",
        "unknown_tagged_fields",
    )
    topic_id: Uuid
    topic_name: str
    partitions: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_id: Uuid = ZERO_UUID,
        topic_name: str = "",
        partitions: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class TopicInfo:
    __slots__ = (
        "topic_id",
        "topic_name",
        "unknown_tagged_fields",
    )
    topic_id: Uuid
    topic_name: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_id: Uuid = ZERO_UUID,
        topic_name: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ShareGroupPartitionMetadataValue:
    __slots__ = (
        "initialized_topics",
        "deleting_topics",
        "unknown_tagged_fields",
    )
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        initialized_topics: list[TopicPartitionsInfo] = EMPTY,
        deleting_topics: list[TopicInfo] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.initialized_topics = [] if initialized_topics is EMPTY else initialized_topics
        self.deleting_topics = [] if deleting_topics is EMPTY else deleting_topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
