"""EndTxnMarker: versions 0, flexible none.

Written by `make messages` from schemas/EndTxnMarker.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class EndTxnMarker:
    __slots__ = (
        "coordinator_epoch",
        "unknown_tagged_fields",
    )
    coordinator_epoch: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        coordinator_epoch: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.coordinator_epoch = coordinator_epoch
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
