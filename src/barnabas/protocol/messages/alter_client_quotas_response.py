"""AlterClientQuotasResponse: versions 0-1, flexible 1+.

Written by `make messages` from schemas/AlterClientQuotasResponse.json.
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


class EntryData:
    __slots__ = (
        "error_code",
        "error_message",
        "entity",
        "unknown_tagged_fields",
    )
    error_code: int
    error_message: str | None
    entity: list[EntityData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        error_code: int = 0,
        error_message: str | None = "",
        entity: list[EntityData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.entity = [] if entity is EMPTY else entity
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterClientQuotasResponse:
    __slots__ = (
        "throttle_time_ms",
        "entries",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    entries: list[EntryData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        entries: list[EntryData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.entries = [] if entries is EMPTY else entries
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
