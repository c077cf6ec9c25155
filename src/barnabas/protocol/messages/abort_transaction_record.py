"""AbortTransactionRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/AbortTransactionRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class AbortTransactionRecord:
    __slots__ = (
        "reason",
        "unknown_tagged_fields",
    )
    reason: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        reason: str | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.reason = reason
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
