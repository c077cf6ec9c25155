"""DescribeClientQuotasResponse: versions 0-1, flexible 1+.

Written by `make messages` from schemas/DescribeClientQuotasResponse.json.
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


class ValueData:
    __slots__ = (
        "key",
        "value",
        "unknown_tagged_fields",
    )
    key: str
    value: float
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        key: str = "",
        value: float = 0.0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.key = key
        self.value = value
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class EntryData:
    __slots__ = (
        "entity",
        "values",
        "unknown_tagged_fields",
    )
    entity: list[EntityData]
    values: list[ValueData]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        entity: list[EntityData] = EMPTY,
        values: list[ValueData] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.entity = [] if entity is EMPTY else entity
        self.values = [] if values is EMPTY else values
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DescribeClientQuotasResponse:
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "entries",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[EntryData] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
        entries: list[EntryData] | None = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.entries = [] if entries is EMPTY else entries
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
