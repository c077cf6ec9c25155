"""FetchRequest: versions 0-18, flexible 12+.

Written by `make messages` from schemas/FetchRequest.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


@mypyc_attr(acyclic=True)
class ReplicaState:
    __slots__ = (
        "replica_id",
        "replica_epoch",
        "unknown_tagged_fields",
    )
    replica_id: int
    replica_epoch: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        replica_id: int = -1,
        replica_epoch: int = -1,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class FetchPartition:
    __slots__ = (
        "partition",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "partition_max_bytes",
        "replica_directory_id",
        "high_watermark",
        "unknown_tagged_fields",
    )
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: Uuid
    high_watermark: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = -1,
        fetch_offset: int = 0,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 0,
        replica_directory_id: Uuid = ZERO_UUID,
        high_watermark: int = 9223372036854775807,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class FetchTopic:
    __slots__ = (
        "topic",
        "topic_id",
        "partitions",
        "unknown_tagged_fields",
    )
    topic: str
    topic_id: Uuid
    partitions: list[FetchPartition]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: Uuid = ZERO_UUID,
        partitions: list[FetchPartition] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class ForgottenTopic:
    __slots__ = (
        "topic",
        "topic_id",
        "partitions",
        "unknown_tagged_fields",
    )
    topic: str
    topic_id: Uuid
    partitions: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic: str = "",
        topic_id: Uuid = ZERO_UUID,
        partitions: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class FetchRequest:
    __slots__ = (
        "cluster_id",
        "replica_id",
        "replica_state",
        "max_wait_ms",
        "min_bytes",
        "max_bytes",
        "isolation_level",
        "session_id",
        "session_epoch",
        "topics",
        "forgotten_topics_data",
        "rack_id",
        "unknown_tagged_fields",
    )
    cluster_id: str | None
    replica_id: int
    replica_state: ReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]
    rack_id: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: ReplicaState | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchTopic] = EMPTY,
        forgotten_topics_data: list[ForgottenTopic] = EMPTY,
        rack_id: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        self.replica_state = ReplicaState() if replica_state is None else replica_state
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics = [] if topics is EMPTY else topics
        self.forgotten_topics_data = [] if forgotten_topics_data is EMPTY else forgotten_topics_data
        self.rack_id = rack_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
