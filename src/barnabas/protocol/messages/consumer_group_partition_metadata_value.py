"""ConsumerGroupPartitionMetadataValue: versions 0, flexible 0+.

Written by `make messages` from schemas/ConsumerGroupPartitionMetadataValue.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class PartitionMetadata:
    __slots__ = (
        "partition",
        "racks",
        "unknown_tagged_fields",
    )
    partition: int
    racks: list[str]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition: int = 0,
        racks: list[str] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition = partition
        self.racks = [] if racks is EMPTY else racks
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class TopicMetadata:
    __slots__ = (
        "topic_id",
        "topic_name",
        "num_partitions",
        "partition_metadata",
        "unknown_tagged_fields",
    )
    topic_id: Uuid
    topic_name: str
    num_partitions: int
    partition_metadata: list[PartitionMetadata]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_id: Uuid = ZERO_UUID,
        topic_name: str = "",
        num_partitions: int = 0,
        partition_metadata: list[PartitionMetadata] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.num_partitions = num_partitions
        self.partition_metadata = [] if partition_metadata is EMPTY else partition_metadata
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ConsumerGroupPartitionMetadataValue:
    __slots__ = (
        "topics",
        "unknown_tagged_fields",
    )
    topics: list[TopicMetadata]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topics: list[TopicMetadata] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
