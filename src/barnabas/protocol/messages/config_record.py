"""ConfigRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/ConfigRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ConfigRecord:
    __slots__ = (
        "resource_type",
        "resource_name",
        "name",
        "value",
        "unknown_tagged_fields",
    )
    resource_type: int
    resource_name: str
    name: str
    value: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        name: str = "",
        value: str | None = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.name = name
        self.value = value
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
