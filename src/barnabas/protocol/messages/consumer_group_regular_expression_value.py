"""ConsumerGroupRegularExpressionValue: versions 0, flexible 0+.

Written by `make messages` from schemas/ConsumerGroupRegularExpressionValue.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class ConsumerGroupRegularExpressionValue:
    __slots__ = (
        "topics",
        "version",
        "timestamp",
        "unknown_tagged_fields",
    )
    topics: list[str]
    version: int
    timestamp: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topics: list[str] = EMPTY,
        version: int = 0,
        timestamp: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topics = [] if topics is EMPTY else topics
        self.version = version
        self.timestamp = timestamp
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
