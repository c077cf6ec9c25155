"""UpdateFeaturesRequest: versions 0-2, flexible 0+.

Written by `make messages` from schemas/UpdateFeaturesRequest.json.
"""

from __future__ import annotations

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


class FeatureUpdateKey:
    __slots__ = (
        "feature",
        "max_version_level",
        "allow_downgrade",
        "upgrade_type",
        "unknown_tagged_fields",
    )
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        feature: str = "",
        max_version_level: int = 0,
        allow_downgrade: bool = False,
        upgrade_type: int = 1,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.feature = feature
        self.max_version_level = max_version_level
        self.allow_downgrade = allow_downgrade
        self.upgrade_type = upgrade_type
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


class UpdateFeaturesRequest:
    __slots__ = (
        "timeout_ms",
        "feature_updates",
        "validate_only",
        "unknown_tagged_fields",
    )
    timeout_ms: int
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        timeout_ms: int = 60000,
        feature_updates: list[FeatureUpdateKey] = EMPTY,
        validate_only: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.timeout_ms = timeout_ms
        self.feature_updates = [] if feature_updates is EMPTY else feature_updates
        self.validate_only = validate_only
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
