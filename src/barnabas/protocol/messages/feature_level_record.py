"""FeatureLevelRecord: versions 0, flexible 0+.

Written by `make messages` from schemas/FeatureLevelRecord.json.
"""

from __future__ import annotations

from barnabas.protocol.message import TaggedFields, equal, show


class FeatureLevelRecord:
    __slots__ = (
        "name",
        "feature_level",
        "unknown_tagged_fields",
    )
    name: str
    feature_level: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        feature_level: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.feature_level = feature_level
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
