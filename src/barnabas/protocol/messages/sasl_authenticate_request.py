"""SaslAuthenticateRequest: versions 0-2, flexible 2+.

Written by `make messages` from schemas/SaslAuthenticateRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class SaslAuthenticateRequest:
    __slots__ = (
        "auth_bytes",
        "unknown_tagged_fields",
    )
    auth_bytes: bytes
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        auth_bytes: bytes = b"",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.auth_bytes = auth_bytes
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
