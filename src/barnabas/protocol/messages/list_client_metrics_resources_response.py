"""ListClientMetricsResourcesResponse: versions 0, flexible 0+.

Written by `make messages` from schemas/ListClientMetricsResourcesResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ClientMetricsResource:
    __slots__ = (
        "name",
        "unknown_tagged_fields",
    )
    name: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ListClientMetricsResourcesResponse:
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "client_metrics_resources",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    error_code: int
    client_metrics_resources: list[ClientMetricsResource]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        client_metrics_resources: list[ClientMetricsResource] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.client_metrics_resources = [] if client_metrics_resources is EMPTY else client_metrics_resources
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
