"""InitializeShareGroupStateRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/InitializeShareGroupStateRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class PartitionData:
    __slots__ = (
        "partition",
        "state_epoch",
        "start_offset",
        "unknown_tagged_fields",
    )
    partition: int
    state_epoch: int
    start_offset: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition: int = 0,
        state_epoch: int = 0,
        start_offset: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition = partition
        self.state_epoch = state_epoch
        self.start_offset = start_offset
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class InitializeStateData:
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


class InitializeShareGroupStateRequest:
    __slots__ = (
        "group_id",
        "topics",
        "unknown_tagged_fields",
    )
    group_id: str
    topics: list[InitializeStateData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[InitializeStateData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
