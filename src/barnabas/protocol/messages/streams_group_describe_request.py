"""StreamsGroupDescribeRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/StreamsGroupDescribeRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class StreamsGroupDescribeRequest:
    __slots__ = (
        "group_ids",
        "include_authorized_operations",
        "unknown_tagged_fields",
    )
    group_ids: list[str]
    include_authorized_operations: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_ids: list[str] = EMPTY,
        include_authorized_operations: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_ids = [] if group_ids is EMPTY else group_ids
        self.include_authorized_operations = include_authorized_operations
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
