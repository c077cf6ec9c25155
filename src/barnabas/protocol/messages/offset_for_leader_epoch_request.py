"""OffsetForLeaderEpochRequest: versions 0-4, flexible 4+.

Written by `make messages` from schemas/OffsetForLeaderEpochRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class OffsetForLeaderPartition:
    __slots__ = (
        "partition",
        "current_leader_epoch",
        "leader_epoch",
        "unknown_tagged_fields",
    )
    partition: int
    current_leader_epoch: int
    leader_epoch: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        leader_epoch: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.leader_epoch = leader_epoch
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class OffsetForLeaderTopic:
    __slots__ = (
        "topic",
        "partitions",
        "unknown_tagged_fields",
    )
    topic: str
    partitions: list[OffsetForLeaderPartition]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[OffsetForLeaderPartition] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class OffsetForLeaderEpochRequest:
    __slots__ = (
        "replica_id",
        "topics",
        "unknown_tagged_fields",
    )
    replica_id: int
    topics: list[OffsetForLeaderTopic]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        replica_id: int = -2,
        topics: list[OffsetForLeaderTopic] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.replica_id = replica_id
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
