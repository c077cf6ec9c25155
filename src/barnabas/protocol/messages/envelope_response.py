"""EnvelopeResponse: versions 0, flexible 0+.

Written by `make messages` from schemas/EnvelopeResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class EnvelopeResponse:
    __slots__ = (
        "response_data",
        "error_code",
        "unknown_tagged_fields",
    )
    response_data: bytes | None
    error_code: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        response_data: bytes | None = None,
        error_code: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.response_data = response_data
        self.error_code = error_code
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
