"""DeleteGroupsRequest: versions 0-2, flexible 2+.

Written by `make messages` from schemas/DeleteGroupsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class DeleteGroupsRequest:
    __slots__ = (
        "groups_names",
        "unknown_tagged_fields",
    )
    groups_names: list[str]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        groups_names: list[str] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.groups_names = [] if groups_names is EMPTY else groups_names
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
