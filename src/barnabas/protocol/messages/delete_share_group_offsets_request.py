"""DeleteShareGroupOffsetsRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/DeleteShareGroupOffsetsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class DeleteShareGroupOffsetsRequestTopic:
    __slots__ = (
        "topic_name",
        "unknown_tagged_fields",
    )
    topic_name: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DeleteShareGroupOffsetsRequest:
    __slots__ = (
        "group_id",
        "topics",
        "unknown_tagged_fields",
    )
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_id: str = "",
        topics: list[DeleteShareGroupOffsetsRequestTopic] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_id = group_id
        self.topics = [] if topics is EMPTY else topics
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
