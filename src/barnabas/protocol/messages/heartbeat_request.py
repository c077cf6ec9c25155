"""HeartbeatRequest: versions 0-4, flexible 4+.

Written by `make messages` from schemas/HeartbeatRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class HeartbeatRequest:
    __slots__ = (
        "group_id",
        "generation_id",
        "member_id",
        "group_instance_id",
        "unknown_tagged_fields",
    )
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
