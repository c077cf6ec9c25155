"""ControlRecordTypeSchema: versions 0, flexible none.

Written by `make messages` from schemas/ControlRecordTypeSchema.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ControlRecordTypeSchema:
    __slots__ = (
        "type",
        "unknown_tagged_fields",
    )
    type: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        type: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.type = type
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
