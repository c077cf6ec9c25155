"""ShareGroupTargetAssignmentMemberValue: versions 0, flexible 0+.

Written by `make messages` from schemas/ShareGroupTargetAssignmentMemberValue.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class TopicPartition:
    __slots__ = (
        "topic_id",
        "partitions",
        "unknown_tagged_fields",
    )
    topic_id: Uuid
    partitions: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_id: Uuid = ZERO_UUID,
        partitions: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_id = topic_id
        self.partitions = [] if partitions is EMPTY else partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ShareGroupTargetAssignmentMemberValue:
    __slots__ = (
        "topic_partitions",
        "unknown_tagged_fields",
    )
    topic_partitions: list[TopicPartition]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_partitions: list[TopicPartition] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_partitions = [] if topic_partitions is EMPTY else topic_partitions
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
