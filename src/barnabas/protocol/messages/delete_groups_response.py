"""DeleteGroupsResponse: versions 0-2, flexible 2+.

Written by `make messages` from schemas/DeleteGroupsResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class DeletableGroupResult:
    __slots__ = (
        "group_id",
        "error_code",
        "unknown_tagged_fields",
    )
    group_id: str
    error_code: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_id: str = "",
        error_code: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_id = group_id
        self.error_code = error_code
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class DeleteGroupsResponse:
    __slots__ = (
        "throttle_time_ms",
        "results",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    results: list[DeletableGroupResult]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DeletableGroupResult] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
