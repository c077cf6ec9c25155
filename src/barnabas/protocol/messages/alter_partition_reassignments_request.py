"""AlterPartitionReassignmentsRequest: versions 0-1, flexible 0+.

Written by `make messages` from schemas/AlterPartitionReassignmentsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ReassignablePartition:
    __slots__ = (
        "partition_index",
        "replicas",
        "unknown_tagged_fields",
    )
    partition_index: int
    replicas: list[int] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        partition_index: int = 0,
        replicas: list[int] | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.partition_index = partition_index
        self.replicas = replicas
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ReassignableTopic:
    __slots__ = (
        "name",
        "partitions",
        "unknown_tagged_fields",
    )
    name: str
    partitions: list[ReassignablePartition]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[ReassignablePartition] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterPartitionReassignmentsRequest:
    __slots__ = (
        "timeout_ms",
        "allow_replication_factor_change",
        "topics",
        "unknown_tagged_fields",
    )
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[ReassignableTopic]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        allow_replication_factor_change: bool = True,
        topics: list[ReassignableTopic] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.timeout_ms = timeout_ms
        self.allow_replication_factor_change = allow_replication_factor_change
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
