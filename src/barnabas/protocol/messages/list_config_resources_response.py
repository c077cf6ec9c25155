"""ListConfigResourcesResponse: versions 0-1, flexible 0+.

Written by `make messages` from schemas/ListConfigResourcesResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ConfigResource:
    __slots__ = (
        "resource_name",
        "resource_type",
        "unknown_tagged_fields",
    )
    resource_name: str
    resource_type: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        resource_name: str = "",
        resource_type: int = 16,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.resource_name = resource_name
        self.resource_type = resource_type
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ListConfigResourcesResponse:
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "config_resources",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    error_code: int
    config_resources: list[ConfigResource]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        config_resources: list[ConfigResource] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.config_resources = [] if config_resources is EMPTY else config_resources
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
