"""UpdateMetadataResponse: versions 0-8, flexible 6+.

Written by `make messages` from schemas/UpdateMetadataResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class UpdateMetadataResponse:
    __slots__ = (
        "error_code",
        "unknown_tagged_fields",
    )
    error_code: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        error_code: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.error_code = error_code
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
