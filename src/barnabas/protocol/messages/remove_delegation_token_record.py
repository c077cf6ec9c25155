"""RemoveDelegationTokenRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/RemoveDelegationTokenRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class RemoveDelegationTokenRecord:
    __slots__ = (
        "token_id",
        "unknown_tagged_fields",
    )
    token_id: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        token_id: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.token_id = token_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
