"""BeginTransactionRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/BeginTransactionRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class BeginTransactionRecord:
    __slots__ = (
        "name",
        "unknown_tagged_fields",
    )
    name: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
