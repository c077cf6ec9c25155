"""ShareGroupMemberMetadataValue: versions 0, flexible 0+.

Written by `make messages` from schemas/ShareGroupMemberMetadataValue.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ShareGroupMemberMetadataValue:
    __slots__ = (
        "rack_id",
        "client_id",
        "client_host",
        "subscribed_topic_names",
        "unknown_tagged_fields",
    )
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = [] if subscribed_topic_names is EMPTY else subscribed_topic_names
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
