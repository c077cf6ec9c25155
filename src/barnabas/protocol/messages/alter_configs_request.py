"""AlterConfigsRequest: versions 0-2, flexible 2+.

Written by `make messages` from schemas/AlterConfigsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class AlterableConfig:
    __slots__ = (
        "name",
        "value",
        "unknown_tagged_fields",
    )
    name: str
    value: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        value: str | None = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.value = value
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterConfigsResource:
    __slots__ = (
        "resource_type",
        "resource_name",
        "configs",
        "unknown_tagged_fields",
    )
    resource_type: int
    resource_name: str
    configs: list[AlterableConfig]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configs: list[AlterableConfig] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configs = [] if configs is EMPTY else configs
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class AlterConfigsRequest:
    __slots__ = (
        "resources",
        "validate_only",
        "unknown_tagged_fields",
    )
    resources: list[AlterConfigsResource]
    validate_only: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        resources: list[AlterConfigsResource] = EMPTY,
        validate_only: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.resources = [] if resources is EMPTY else resources
        self.validate_only = validate_only
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
