"""FindCoordinatorRequest: versions 0-6, flexible 3+.

Written by `make messages` from schemas/FindCoordinatorRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class FindCoordinatorRequest:
    __slots__ = (
        "key",
        "key_type",
        "coordinator_keys",
        "unknown_tagged_fields",
    )
    key: str
    key_type: int
    coordinator_keys: list[str]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        key: str = "",
        key_type: int = 0,
        coordinator_keys: list[str] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.key = key
        self.key_type = key_type
        self.coordinator_keys = [] if coordinator_keys is EMPTY else coordinator_keys
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
