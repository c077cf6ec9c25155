"""The features of the cluster with their levels, as ApiVersions lists them.

A single node has all of them at their highest levels. In a cluster with ZooKeeper the controller finalizes levels.
"""

from __future__ import annotations

from typing import Final

from barnabas.coordination.metadata.features import (
    SUPPORTED,
    FinalizedFeatures,
    LevelRange,
    SupportedFeatures,
)
from barnabas.protocol.messages.api_versions_response import FinalizedFeatureKey, SupportedFeatureKey

# Older clients cannot read a feature that may be at level 0.
_FIRST_WITH_LEVEL_0: Final = 4

# Releases of Kafka: level 7 is 3.3, level 30 is 4.3. Tools show it as the version of the cluster. It does not exist in
# clusters with ZooKeeper.
_METADATA_VERSION: Final = "metadata.version"
SINGLE_NODE: Final[SupportedFeatures] = {_METADATA_VERSION: LevelRange(7, 30), **SUPPORTED}
_SINGLE_NODE_LEVELS: Final = {name: each.max_level for name, each in SINGLE_NODE.items()}


def supported_features(version: int, *, uses_zookeeper: bool) -> list[SupportedFeatureKey]:
    """In the form of this version of ApiVersions."""
    return [
        SupportedFeatureKey(name=name, min_version=each.min_level, max_version=each.max_level)
        for name, each in (SUPPORTED if uses_zookeeper else SINGLE_NODE).items()
        if each.min_level > 0 or version >= _FIRST_WITH_LEVEL_0
    ]


def finalized_features(features: FinalizedFeatures, *, uses_zookeeper: bool) -> list[FinalizedFeatureKey]:
    levels = features.levels if uses_zookeeper else _SINGLE_NODE_LEVELS
    return [
        FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
        for name, level in levels.items()
    ]
