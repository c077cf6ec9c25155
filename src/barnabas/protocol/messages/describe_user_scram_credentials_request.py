"""DescribeUserScramCredentialsRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/DescribeUserScramCredentialsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class UserName:
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


class DescribeUserScramCredentialsRequest:
    __slots__ = (
        "users",
        "unknown_tagged_fields",
    )
    users: list[UserName] | None
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        users: list[UserName] | None = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.users = [] if users is EMPTY else users
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
