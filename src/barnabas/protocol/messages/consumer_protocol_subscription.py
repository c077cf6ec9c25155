"""ConsumerProtocolSubscription: versions 0-3, flexible none.

Written by `make messages` from schemas/ConsumerProtocolSubscription.json.
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


class ConsumerProtocolSubscription:
    __slots__ = (
        "topics",
        "user_data",
        "owned_partitions",
        "generation_id",
        "rack_id",
        "unknown_tagged_fields",
    )
    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[TopicPartition]
    generation_id: int
    rack_id: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topics: list[str] = EMPTY,
        user_data: bytes | None = None,
        owned_partitions: list[TopicPartition] = EMPTY,
        generation_id: int = -1,
        rack_id: str | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.user_data = user_data
        self.owned_partitions = [] if owned_partitions is EMPTY else owned_partitions
        self.generation_id = generation_id
        self.rack_id = rack_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
