"""EndQuorumEpochRequest: versions 0-1, flexible 1+.

Written by `make messages` from schemas/EndQuorumEpochRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class ReplicaInfo:
    __slots__ = (
        "candidate_id",
        "candidate_directory_id",
        "unknown_tagged_fields",
    )
    candidate_id: int
    candidate_directory_id: Uuid
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        candidate_id: int = 0,
        candidate_directory_id: Uuid = ZERO_UUID,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.candidate_id = candidate_id
        self.candidate_directory_id = candidate_directory_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class PartitionData:
    __slots__ = (
        "partition_index",
        "leader_id",
        "leader_epoch",
        "preferred_successors",
        "preferred_candidates",
        "unknown_tagged_fields",
    )
    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_successors: list[int]
    preferred_candidates: list[ReplicaInfo]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = 0,
        preferred_successors: list[int] = EMPTY,
        preferred_candidates: list[ReplicaInfo] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.preferred_successors = [] if preferred_successors is EMPTY else preferred_successors
        self.preferred_candidates = [] if preferred_candidates is EMPTY else preferred_candidates
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class TopicData:
    __slots__ = (
        "topic_name",
        "partitions",
        "unknown_tagged_fields",
    )
    topic_name: str
    partitions: list[PartitionData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[PartitionData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaderEndpoint:
    __slots__ = (
        "name",
        "host",
        "port",
        "unknown_tagged_fields",
    )
    name: str
    host: str
    port: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        host: str = "",
        port: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class EndQuorumEpochRequest:
    __slots__ = (
        "cluster_id",
        "topics",
        "leader_endpoints",
        "unknown_tagged_fields",
    )
    cluster_id: str | None
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        topics: list[TopicData] = EMPTY,
        leader_endpoints: list[LeaderEndpoint] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.cluster_id = cluster_id
        self.topics = [] if topics is EMPTY else topics
        self.leader_endpoints = [] if leader_endpoints is EMPTY else leader_endpoints
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
