"""DescribeClientQuotasRequest: versions 0-1, flexible 1+.

Written by `make messages` from schemas/DescribeClientQuotasRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ComponentData:
    __slots__ = (
        "entity_type",
        "match_type",
        "match",
        "unknown_tagged_fields",
    )
    entity_type: str
    match_type: int
    match: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        entity_type: str = "",
        match_type: int = 0,
        match: str | None = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.entity_type = entity_type
        self.match_type = match_type
        self.match = match
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DescribeClientQuotasRequest:
    __slots__ = (
        "components",
        "strict",
        "unknown_tagged_fields",
    )
    components: list[ComponentData]
    strict: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        components: list[ComponentData] = EMPTY,
        strict: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.components = [] if components is EMPTY else components
        self.strict = strict
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
