"""AssignReplicasToDirsRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/AssignReplicasToDirsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class PartitionData:
    __slots__ = (
        "partition_index",
        "unknown_tagged_fields",
    )
    partition_index: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition_index: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition_index = partition_index
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class TopicData:
    __slots__ = (
        "topic_id",
        "partitions",
        "unknown_tagged_fields",
    )
    topic_id: Uuid
    partitions: list[PartitionData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_id: Uuid = ZERO_UUID,
        partitions: list[PartitionData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DirectoryData:
    __slots__ = (
        "id",
        "topics",
        "unknown_tagged_fields",
    )
    id: Uuid
    topics: list[TopicData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        id: Uuid = ZERO_UUID,
        topics: list[TopicData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.id = id
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AssignReplicasToDirsRequest:
    __slots__ = (
        "broker_id",
        "broker_epoch",
        "directories",
        "unknown_tagged_fields",
    )
    broker_id: int
    broker_epoch: int
    directories: list[DirectoryData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        directories: list[DirectoryData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.directories = [] if directories is EMPTY else directories
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
