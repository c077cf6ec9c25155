"""DescribeGroupsRequest: versions 0-6, flexible 5+.

Written by `make messages` from schemas/DescribeGroupsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class DescribeGroupsRequest:
    __slots__ = (
        "groups",
        "include_authorized_operations",
        "unknown_tagged_fields",
    )
    groups: list[str]
    include_authorized_operations: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        groups: list[str] = EMPTY,
        include_authorized_operations: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.groups = [] if groups is EMPTY else groups
        self.include_authorized_operations = include_authorized_operations
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
