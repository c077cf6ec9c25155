"""ListGroupsResponse: versions 0-5, flexible 3+.

Written by `make messages` from schemas/ListGroupsResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ListedGroup:
    __slots__ = (
        "group_id",
        "protocol_type",
        "group_state",
        "group_type",
        "unknown_tagged_fields",
    )
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_id: str = "",
        protocol_type: str = "",
        group_state: str = "",
        group_type: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.group_state = group_state
        self.group_type = group_type
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class ListGroupsResponse:
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "groups",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    error_code: int
    groups: list[ListedGroup]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        groups: list[ListedGroup] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.groups = [] if groups is EMPTY else groups
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
