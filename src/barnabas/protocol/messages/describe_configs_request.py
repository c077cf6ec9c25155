"""DescribeConfigsRequest: versions 0-4, flexible 4+.

Written by `make messages` from schemas/DescribeConfigsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class DescribeConfigsResource:
    __slots__ = (
        "resource_type",
        "resource_name",
        "configuration_keys",
        "unknown_tagged_fields",
    )
    resource_type: int
    resource_name: str
    configuration_keys: list[str] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        resource_type: int = 0,
        resource_name: str = "",
        configuration_keys: list[str] | None = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.configuration_keys = [] if configuration_keys is EMPTY else configuration_keys
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DescribeConfigsRequest:
    __slots__ = (
        "resources",
        "include_synonyms",
        "include_documentation",
        "unknown_tagged_fields",
    )
    resources: list[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        resources: list[DescribeConfigsResource] = EMPTY,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.resources = [] if resources is EMPTY else resources
        self.include_synonyms = include_synonyms
        self.include_documentation = include_documentation
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
