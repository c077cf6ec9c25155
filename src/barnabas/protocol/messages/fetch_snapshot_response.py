"""FetchSnapshotResponse: versions 0-1, flexible 0+.

Written by `make messages` from schemas/FetchSnapshotResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, Records, TaggedFields, equal, show


class SnapshotId:
    __slots__ = (
        "end_offset",
        "epoch",
        "unknown_tagged_fields",
    )
    end_offset: int
    epoch: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        end_offset: int = 0,
        epoch: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.end_offset = end_offset
        self.epoch = epoch
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaderIdAndEpoch:
    __slots__ = (
        "leader_id",
        "leader_epoch",
        "unknown_tagged_fields",
    )
    leader_id: int
    leader_epoch: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        leader_id: int = 0,
        leader_epoch: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class PartitionSnapshot:
    __slots__ = (
        "index",
        "error_code",
        "snapshot_id",
        "current_leader",
        "size",
        "position",
        "unaligned_records",
        "unknown_tagged_fields",
    )
    index: int
    error_code: int
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch
    size: int
    position: int
    unaligned_records: Records | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        snapshot_id: SnapshotId | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        size: int = 0,
        position: int = 0,
        unaligned_records: Records | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.snapshot_id = SnapshotId() if snapshot_id is None else snapshot_id
        self.current_leader = LeaderIdAndEpoch() if current_leader is None else current_leader
        self.size = size
        self.position = position
        self.unaligned_records = unaligned_records
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class TopicSnapshot:
    __slots__ = (
        "name",
        "partitions",
        "unknown_tagged_fields",
    )
    name: str
    partitions: list[PartitionSnapshot]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[PartitionSnapshot] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class NodeEndpoint:
    __slots__ = (
        "node_id",
        "host",
        "port",
        "unknown_tagged_fields",
    )
    node_id: int
    host: str
    port: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class FetchSnapshotResponse:
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "topics",
        "node_endpoints",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    error_code: int
    topics: list[TopicSnapshot]
    node_endpoints: list[NodeEndpoint]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        topics: list[TopicSnapshot] = EMPTY,
        node_endpoints: list[NodeEndpoint] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.topics = [] if topics is EMPTY else topics
        self.node_endpoints = [] if node_endpoints is EMPTY else node_endpoints
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
