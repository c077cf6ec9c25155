"""RequestHeader: versions 0-2, flexible 2+.

Written by `make messages` from schemas/RequestHeader.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import TaggedFields, equal, show


@mypyc_attr(acyclic=True)
class RequestHeader:
    __slots__ = (
        "request_api_key",
        "request_api_version",
        "correlation_id",
        "client_id",
        "unknown_tagged_fields",
    )
    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        request_api_key: int = 0,
        request_api_version: int = 0,
        correlation_id: int = 0,
        client_id: str | None = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.request_api_key = request_api_key
        self.request_api_version = request_api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
