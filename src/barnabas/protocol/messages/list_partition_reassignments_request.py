"""ListPartitionReassignmentsRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/ListPartitionReassignmentsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ListPartitionReassignmentsTopics:
    __slots__ = (
        "name",
        "partition_indexes",
        "unknown_tagged_fields",
    )
    name: str
    partition_indexes: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        partition_indexes: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.partition_indexes = [] if partition_indexes is EMPTY else partition_indexes
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ListPartitionReassignmentsRequest:
    __slots__ = (
        "timeout_ms",
        "topics",
        "unknown_tagged_fields",
    )
    timeout_ms: int
    topics: list[ListPartitionReassignmentsTopics] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        topics: list[ListPartitionReassignmentsTopics] | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.timeout_ms = timeout_ms
        self.topics = topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
