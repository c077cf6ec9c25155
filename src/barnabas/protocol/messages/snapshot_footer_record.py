"""SnapshotFooterRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/SnapshotFooterRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class SnapshotFooterRecord:
    __slots__ = (
        "version",
        "unknown_tagged_fields",
    )
    version: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        version: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.version = version
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
