"""ClientQuotaRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/ClientQuotaRecord.json.
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


class ClientQuotaRecord:
    __slots__ = (
        "entity",
        "key",
        "value",
        "remove",
        "unknown_tagged_fields",
    )
    entity: list[EntityData]
    key: str
    value: float
    remove: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        key: str = "",
        value: float = 0.0,
        remove: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.key = key
        self.value = value
        self.remove = remove
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
