"""ConsumerGroupMemberMetadataValue: versions 0, flexible 0+.

Written by `make messages` from schemas/ConsumerGroupMemberMetadataValue.json.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ClassicProtocol:
    __slots__ = (
        "name",
        "metadata",
        "unknown_tagged_fields",
    )
    name: str
    metadata: bytes
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        metadata: bytes = b"",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.metadata = metadata
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ClassicMemberMetadata:
    __slots__ = (
        "session_timeout_ms",
        "supported_protocols",
        "unknown_tagged_fields",
    )
    session_timeout_ms: int
    supported_protocols: list[ClassicProtocol]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        session_timeout_ms: int = 0,
        supported_protocols: list[ClassicProtocol] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.supported_protocols = [] if supported_protocols is EMPTY else supported_protocols
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


_DEFAULT_CLASSIC_MEMBER_METADATA: Final = ClassicMemberMetadata()


class ConsumerGroupMemberMetadataValue:
    __slots__ = (
        "instance_id",
        "rack_id",
        "client_id",
        "client_host",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "rebalance_timeout_ms",
        "server_assignor",
        "classic_member_metadata",
        "unknown_tagged_fields",
    )
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        instance_id: str | None = "",
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
        subscribed_topic_regex: str | None = "",
        rebalance_timeout_ms: int = -1,
        server_assignor: str | None = "",
        classic_member_metadata: ClassicMemberMetadata | None = _DEFAULT_CLASSIC_MEMBER_METADATA,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = [] if subscribed_topic_names is EMPTY else subscribed_topic_names
        self.subscribed_topic_regex = subscribed_topic_regex
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.server_assignor = server_assignor
        self.classic_member_metadata = (
            ClassicMemberMetadata()
            if classic_member_metadata is _DEFAULT_CLASSIC_MEMBER_METADATA
            else classic_member_metadata
        )
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
