"""GroupMetadataKey: versions 0, flexible none.

Written by `make messages` from schemas/GroupMetadataKey.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class GroupMetadataKey:
    __slots__ = (
        "group",
        "unknown_tagged_fields",
    )
    group: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group = group
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
