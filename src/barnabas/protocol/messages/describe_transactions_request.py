"""DescribeTransactionsRequest: versions 0, flexible 0+.

Written by `make messages` from schemas/DescribeTransactionsRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class DescribeTransactionsRequest:
    __slots__ = (
        "transactional_ids",
        "unknown_tagged_fields",
    )
    transactional_ids: list[str]
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        transactional_ids: list[str] = EMPTY,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.transactional_ids = [] if transactional_ids is EMPTY else transactional_ids
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
