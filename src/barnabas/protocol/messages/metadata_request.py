"""MetadataRequest: versions 0-13, flexible 9+.

Written by `make messages` from schemas/MetadataRequest.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import EMPTY, ZERO_UUID, TaggedFields, Uuid, equal, show


@mypyc_attr(acyclic=True)
class MetadataRequestTopic:
    __slots__ = (
        "topic_id",
        "name",
        "unknown_tagged_fields",
    )
    topic_id: Uuid
    name: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_id: Uuid = ZERO_UUID,
        name: str | None = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_id = topic_id
        self.name = name
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class MetadataRequest:
    __slots__ = (
        "topics",
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
        "unknown_tagged_fields",
    )
    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topics: list[MetadataRequestTopic] | None = EMPTY,
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.include_topic_authorized_operations = include_topic_authorized_operations
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
