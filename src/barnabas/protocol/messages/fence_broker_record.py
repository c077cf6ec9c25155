"""FenceBrokerRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/FenceBrokerRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class FenceBrokerRecord:
    __slots__ = (
        "id",
        "epoch",
        "unknown_tagged_fields",
    )
    id: int
    epoch: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        id: int = 0,
        epoch: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.id = id
        self.epoch = epoch
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
