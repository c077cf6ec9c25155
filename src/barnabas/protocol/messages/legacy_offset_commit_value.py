"""LegacyOffsetCommitValue: versions 0, flexible none.

Written by `make messages` from schemas/LegacyOffsetCommitValue.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class LegacyOffsetCommitValue:
    __slots__ = (
        "offset",
        "metadata",
        "commit_timestamp",
        "unknown_tagged_fields",
    )
    offset: int
    metadata: str
    commit_timestamp: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        offset: int = 0,
        metadata: str = "",
        commit_timestamp: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.offset = offset
        self.metadata = metadata
        self.commit_timestamp = commit_timestamp
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
