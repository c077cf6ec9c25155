"""RemoveUserScramCredentialRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/RemoveUserScramCredentialRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class RemoveUserScramCredentialRecord:
    __slots__ = (
        "name",
        "mechanism",
        "unknown_tagged_fields",
    )
    name: str
    mechanism: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
