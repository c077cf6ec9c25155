"""RemoveAccessControlEntryRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/RemoveAccessControlEntryRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import ZERO_UUID, TaggedFields, Uuid, equal, show


class RemoveAccessControlEntryRecord:
    __slots__ = (
        "id",
        "unknown_tagged_fields",
    )
    id: Uuid
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        id: Uuid = ZERO_UUID,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.id = id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
