"""ListGroupsRequest: versions 0-5, flexible 3+.

Written by `make messages` from schemas/ListGroupsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ListGroupsRequest:
    __slots__ = (
        "states_filter",
        "types_filter",
        "unknown_tagged_fields",
    )
    states_filter: list[str]
    types_filter: list[str]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        states_filter: list[str] = EMPTY,
        types_filter: list[str] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.states_filter = [] if states_filter is EMPTY else states_filter
        self.types_filter = [] if types_filter is EMPTY else types_filter
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
