"""ShareGroupMetadataValue: versions 0, flexible 0+.

Written by `make messages` from schemas/ShareGroupMetadataValue.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class ShareGroupMetadataValue:
    __slots__ = (
        "epoch",
        "metadata_hash",
        "unknown_tagged_fields",
    )
    epoch: int
    metadata_hash: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        epoch: int = 0,
        metadata_hash: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
