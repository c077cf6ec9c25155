"""SaslHandshakeRequest: versions 0-1, flexible none.

Written by `make messages` from schemas/SaslHandshakeRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class SaslHandshakeRequest:
    __slots__ = (
        "mechanism",
        "unknown_tagged_fields",
    )
    mechanism: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        mechanism: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.mechanism = mechanism
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
