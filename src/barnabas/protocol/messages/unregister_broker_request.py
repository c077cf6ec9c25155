"""UnregisterBrokerRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/UnregisterBrokerRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class UnregisterBrokerRequest:
    __slots__ = (
        "broker_id",
        "unknown_tagged_fields",
    )
    broker_id: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        broker_id: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.broker_id = broker_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
