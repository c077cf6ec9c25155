"""ListOffsetsRequest: versions 0-11, flexible 6+.

Written by `make messages` from schemas/ListOffsetsRequest.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


@mypyc_attr(acyclic=True)
class ListOffsetsPartition:
    __slots__ = (
        "partition_index",
        "current_leader_epoch",
        "timestamp",
        "max_num_offsets",
        "unknown_tagged_fields",
    )
    partition_index: int
    current_leader_epoch: int
    timestamp: int
    max_num_offsets: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition_index: int = 0,
        current_leader_epoch: int = -1,
        timestamp: int = 0,
        max_num_offsets: int = 1,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch
        self.timestamp = timestamp
        self.max_num_offsets = max_num_offsets
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class ListOffsetsTopic:
    __slots__ = (
        "name",
        "partitions",
        "unknown_tagged_fields",
    )
    name: str
    partitions: list[ListOffsetsPartition]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ListOffsetsPartition] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class ListOffsetsRequest:
    __slots__ = (
        "replica_id",
        "isolation_level",
        "topics",
        "timeout_ms",
        "unknown_tagged_fields",
    )
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        replica_id: int = 0,
        isolation_level: int = 0,
        topics: list[ListOffsetsTopic] = EMPTY,
        timeout_ms: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.replica_id = replica_id
        self.isolation_level = isolation_level
        self.topics = [] if topics is EMPTY else topics
        self.timeout_ms = timeout_ms
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
