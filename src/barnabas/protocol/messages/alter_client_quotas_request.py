"""AlterClientQuotasRequest: versions 0-1, flexible 1+.

Written by `make messages` from schemas/AlterClientQuotasRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class EntityData:
    __slots__ = (
        "entity_type",
        "entity_name",
        "unknown_tagged_fields",
    )
    entity_type: str
    entity_name: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        entity_type: str = "",
        entity_name: str | None = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class OpData:
    __slots__ = (
        "key",
        "value",
        "remove",
        "unknown_tagged_fields",
    )
    key: str
    value: float
    remove: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.key = key
        self.value = value
        self.remove = remove
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class EntryData:
    __slots__ = (
        "entity",
        "ops",
        "unknown_tagged_fields",
    )
    entity: list[EntityData]
    ops: list[OpData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        ops: list[OpData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.ops = [] if ops is EMPTY else ops
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterClientQuotasRequest:
    __slots__ = (
        "entries",
        "validate_only",
        "unknown_tagged_fields",
    )
    entries: list[EntryData]
    validate_only: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        entries: list[EntryData] = EMPTY,
        validate_only: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.entries = [] if entries is EMPTY else entries
        self.validate_only = validate_only
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
