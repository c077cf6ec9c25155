"""ShareSnapshotKey: versions 0, flexible none.

Written by `make messages` from schemas/ShareSnapshotKey.json.
"""

from __future__ import annotations

from barnabas.protocol.message import ZERO_UUID, TaggedFields, Uuid, equal, show


class ShareSnapshotKey:
    __slots__ = (
        "group_id",
        "topic_id",
        "partition",
        "unknown_tagged_fields",
    )
    group_id: str
    topic_id: Uuid
    partition: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        group_id: str = "",
        topic_id: Uuid = ZERO_UUID,
        partition: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.group_id = group_id
        self.topic_id = topic_id
        self.partition = partition
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
