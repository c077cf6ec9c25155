"""ApiVersionsRequest: versions 0-4, flexible 3+.

Written by `make messages` from schemas/ApiVersionsRequest.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import TaggedFields, equal, show


@mypyc_attr(acyclic=True)
class ApiVersionsRequest:
    __slots__ = (
        "client_software_name",
        "client_software_version",
        "unknown_tagged_fields",
    )
    client_software_name: str
    client_software_version: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        client_software_name: str = "",
        client_software_version: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
