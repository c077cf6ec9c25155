"""LeaveGroupResponse: versions 0-5, flexible 4+.

Written by `make messages` from schemas/LeaveGroupResponse.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class MemberResponse:
    __slots__ = (
        "member_id",
        "group_instance_id",
        "error_code",
        "unknown_tagged_fields",
    )
    member_id: str
    group_instance_id: str | None
    error_code: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = "",
        error_code: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.error_code = error_code
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaveGroupResponse:
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "members",
        "unknown_tagged_fields",
    )
    throttle_time_ms: int
    error_code: int
    members: list[MemberResponse]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[MemberResponse] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.members = [] if members is EMPTY else members
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
