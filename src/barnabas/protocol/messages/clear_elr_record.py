"""ClearElrRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/ClearElrRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ClearElrRecord:
    __slots__ = (
        "topic_name",
        "unknown_tagged_fields",
    )
    topic_name: str
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        topic_name: str = "",
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.topic_name = topic_name
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
