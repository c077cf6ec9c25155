"""AddOffsetsToTxnRequest: versions 0-4, flexible 3+.

Written by `make messages` from schemas/AddOffsetsToTxnRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class AddOffsetsToTxnRequest:
    __slots__ = (
        "transactional_id",
        "producer_id",
        "producer_epoch",
        "group_id",
        "unknown_tagged_fields",
    )
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        group_id: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.group_id = group_id
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
