"""EnvelopeRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/EnvelopeRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class EnvelopeRequest:
    __slots__ = (
        "request_data",
        "request_principal",
        "client_host_address",
        "unknown_tagged_fields",
    )
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        request_data: bytes = b"",
        request_principal: bytes | None = b"",
        client_host_address: bytes = b"",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.request_data = request_data
        self.request_principal = request_principal
        self.client_host_address = client_host_address
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
