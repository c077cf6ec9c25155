"""OffsetCommitKey: versions 0, flexible none.

Written by `make messages` from schemas/OffsetCommitKey.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import TaggedFields, equal, show


@mypyc_attr(acyclic=True)
class OffsetCommitKey:
    __slots__ = (
        "group",
        "topic",
        "partition",
        "unknown_tagged_fields",
    )
    group: str
    topic: str
    partition: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group: str = "",
        topic: str = "",
        partition: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group = group
        self.topic = topic
        self.partition = partition
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
