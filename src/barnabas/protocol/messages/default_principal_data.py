"""DefaultPrincipalData: versions 0, flexible 0+.

Written by `make messages` from schemas/DefaultPrincipalData.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class DefaultPrincipalData:
    __slots__ = (
        "type",
        "name",
        "token_authenticated",
        "unknown_tagged_fields",
    )
    type: str
    name: str
    token_authenticated: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        type: str = "",
        name: str = "",
        token_authenticated: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.type = type
        self.name = name
        self.token_authenticated = token_authenticated
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
