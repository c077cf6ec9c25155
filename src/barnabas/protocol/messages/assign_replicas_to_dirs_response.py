"""AssignReplicasToDirsResponse: versions 0, flexible 0+.

Written by `make messages` from schemas/AssignReplicasToDirsResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class PartitionData:
    __slots__ = (
        "partition_index",
        "error_code",
        "unknown_tagged_fields",
    )
    partition_index: int
    error_code: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
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


class AssignReplicasToDirsResponse:
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "directories",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    error_code: int
    directories: list[DirectoryData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        directories: list[DirectoryData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.directories = [] if directories is EMPTY else directories
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
