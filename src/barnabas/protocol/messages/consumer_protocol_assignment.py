"""ConsumerProtocolAssignment: versions 0-3, flexible none.

Written by `make messages` from schemas/ConsumerProtocolAssignment.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class TopicPartition:
    __slots__ = (
        "topic",
        "partitions",
        "unknown_tagged_fields",
    )
    topic: str
    partitions: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ConsumerProtocolAssignment:
    __slots__ = (
        "assigned_partitions",
        "user_data",
        "unknown_tagged_fields",
    )
    assigned_partitions: list[TopicPartition]
    user_data: bytes | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        assigned_partitions: list[TopicPartition] = EMPTY,
        user_data: bytes | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.assigned_partitions = [] if assigned_partitions is EMPTY else assigned_partitions
        self.user_data = user_data
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
