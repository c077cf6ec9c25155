"""ResponseHeader: versions 0-1, flexible 1+.

Written by `make messages` from schemas/ResponseHeader.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import TaggedFields, equal, show


@mypyc_attr(acyclic=True)
class ResponseHeader:
    __slots__ = (
        "correlation_id",
        "unknown_tagged_fields",
    )
    correlation_id: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        correlation_id: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.correlation_id = correlation_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
