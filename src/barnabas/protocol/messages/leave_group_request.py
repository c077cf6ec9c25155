"""LeaveGroupRequest: versions 0-5, flexible 4+.

Written by `make messages` from schemas/LeaveGroupRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class MemberIdentity:
    __slots__ = (
        "member_id",
        "group_instance_id",
        "reason",
        "unknown_tagged_fields",
    )
    member_id: str
    group_instance_id: str | None
    reason: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        reason: str | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class LeaveGroupRequest:
    __slots__ = (
        "group_id",
        "member_id",
        "members",
        "unknown_tagged_fields",
    )
    group_id: str
    member_id: str
    members: list[MemberIdentity]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        members: list[MemberIdentity] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.members = [] if members is EMPTY else members
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
