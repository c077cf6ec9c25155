"""ListConfigResourcesRequest: versions 0-1, flexible 0+.

Written by `make messages` from schemas/ListConfigResourcesRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ListConfigResourcesRequest:
    __slots__ = (
        "resource_types",
        "unknown_tagged_fields",
    )
    resource_types: list[int]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        resource_types: list[int] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.resource_types = [] if resource_types is EMPTY else resource_types
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
