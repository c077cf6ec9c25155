"""DeleteTopicsRequest: versions 0-6, flexible 4+.

Written by `make messages` from schemas/DeleteTopicsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


class DeleteTopicState:
    __slots__ = (
        "name",
        "topic_id",
        "unknown_tagged_fields",
    )
    name: str | None
    topic_id: Uuid
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str | None = None,
        topic_id: Uuid = ZERO_UUID,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DeleteTopicsRequest:
    __slots__ = (
        "topics",
        "topic_names",
        "timeout_ms",
        "unknown_tagged_fields",
    )
    topics: list[DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topics: list[DeleteTopicState] = EMPTY,
        topic_names: list[str] = EMPTY,
        timeout_ms: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.topic_names = [] if topic_names is EMPTY else topic_names
        self.timeout_ms = timeout_ms
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
