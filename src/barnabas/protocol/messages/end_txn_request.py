"""EndTxnRequest: versions 0-5, flexible 3+.

Written by `make messages` from schemas/EndTxnRequest.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import TaggedFields, equal, show


@mypyc_attr(acyclic=True)
class EndTxnRequest:
    __slots__ = (
        "transactional_id",
        "producer_id",
        "producer_epoch",
        "committed",
        "unknown_tagged_fields",
    )
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        transactional_id: str = "",
        producer_id: int = 0,
        producer_epoch: int = 0,
        committed: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.committed = committed
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
