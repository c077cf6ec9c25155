"""SaslHandshakeResponse: versions 0-1, flexible none.

Written by `make messages` from schemas/SaslHandshakeResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class SaslHandshakeResponse:
    __slots__ = (
        "error_code",
        "mechanisms",
        "unknown_tagged_fields",
    )
    error_code: int
    mechanisms: list[str]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        error_code: int = 0,
        mechanisms: list[str] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.error_code = error_code
        self.mechanisms = [] if mechanisms is EMPTY else mechanisms
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
