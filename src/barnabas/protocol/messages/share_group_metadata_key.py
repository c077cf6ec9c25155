"""ShareGroupMetadataKey: versions 0, flexible none.

Written by `make messages` from schemas/ShareGroupMetadataKey.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ShareGroupMetadataKey:
    __slots__ = (
        "group_id",
        "unknown_tagged_fields",
    )
    group_id: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_id: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_id = group_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
