"""ApiVersionsResponse: versions 0-4, flexible 3+.

Written by `make messages` from schemas/ApiVersionsResponse.json.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from barnabas.protocol.message import EMPTY, TaggedFields, equal, show


@mypyc_attr(acyclic=True)
class ApiVersion:
    __slots__ = (
        "api_key",
        "min_version",
        "max_version",
        "unknown_tagged_fields",
    )
    api_key: int
    min_version: int
    max_version: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        api_key: int = 0,
        min_version: int = 0,
        max_version: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.api_key = api_key
        self.min_version = min_version
        self.max_version = max_version
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class SupportedFeatureKey:
    __slots__ = (
        "name",
        "min_version",
        "max_version",
        "unknown_tagged_fields",
    )
    name: str
    min_version: int
    max_version: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        min_version: int = 0,
        max_version: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class FinalizedFeatureKey:
    __slots__ = (
        "name",
        "max_version_level",
        "min_version_level",
        "unknown_tagged_fields",
    )
    name: str
    max_version_level: int
    min_version_level: int
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        name: str = "",
        max_version_level: int = 0,
        min_version_level: int = 0,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.name = name
        self.max_version_level = max_version_level
        self.min_version_level = min_version_level
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)


@mypyc_attr(acyclic=True)
class ApiVersionsResponse:
    __slots__ = (
        "error_code",
        "api_keys",
        "throttle_time_ms",
        "supported_features",
        "finalized_features_epoch",
        "finalized_features",
        "zk_migration_ready",
        "unknown_tagged_fields",
    )
    error_code: int
    api_keys: list[ApiVersion]
    throttle_time_ms: int
    supported_features: list[SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[FinalizedFeatureKey]
    zk_migration_ready: bool
    unknown_tagged_fields: TaggedFields

    def __init__(
        self,
        *,
        error_code: int = 0,
        api_keys: list[ApiVersion] = EMPTY,
        throttle_time_ms: int = 0,
        supported_features: list[SupportedFeatureKey] = EMPTY,
        finalized_features_epoch: int = -1,
        finalized_features: list[FinalizedFeatureKey] = EMPTY,
        zk_migration_ready: bool = False,
        unknown_tagged_fields: TaggedFields = (),
    ) -> None:
        self.error_code = error_code
        self.api_keys = [] if api_keys is EMPTY else api_keys
        self.throttle_time_ms = throttle_time_ms
        self.supported_features = [] if supported_features is EMPTY else supported_features
        self.finalized_features_epoch = finalized_features_epoch
        self.finalized_features = [] if finalized_features is EMPTY else finalized_features
        self.zk_migration_ready = zk_migration_ready
        self.unknown_tagged_fields = unknown_tagged_fields

    def __eq__(self, other: object) -> bool:
        return equal(self, other)

    def __repr__(self) -> str:
        return show(self)
