"""ControlledShutdownRequest: versions 0-3, flexible 3+.

Written by `make messages` from schemas/ControlledShutdownRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ControlledShutdownRequest:
    __slots__ = (
        "broker_id",
        "broker_epoch",
        "unknown_tagged_fields",
    )
    broker_id: int
    broker_epoch: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
