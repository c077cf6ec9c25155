"""The features of the cluster with their levels. Barnabas always uses the highest level."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.protocol.messages.api_versions_response import FinalizedFeatureKey, SupportedFeatureKey

# Counts changes of levels, and there are none. Clients ignore features whose epoch is below 0.
FEATURES_EPOCH: Final = 0
# Older clients cannot read a feature that may be at level 0.
_FIRST_WITH_LEVEL_0: Final = 4


class Feature(NamedTuple):
    name: str
    min_level: int
    max_level: int


FEATURES: Final = (
    # Releases of Kafka: level 7 is 3.3, level 30 is 4.3. Tools show it as the version of the cluster.
    Feature("metadata.version", 7, 30),
    # Level 1: the broker assigns partitions to the members of groups (KIP-848).
    Feature("group.version", 0, 1),
    # Level 2: writing to a partition adds it to the transaction, and each transaction has its own epoch (KIP-890).
    Feature("transaction.version", 0, 2),
)


def supported_features(version: int) -> list[SupportedFeatureKey]:
    """In the form of this version of ApiVersions."""
    return [
        SupportedFeatureKey(name=feature.name, min_version=feature.min_level, max_version=feature.max_level)
        for feature in FEATURES
        if feature.min_level > 0 or version >= _FIRST_WITH_LEVEL_0
    ]


def finalized_features() -> list[FinalizedFeatureKey]:
    return [
        FinalizedFeatureKey(
            name=feature.name, min_version_level=feature.max_level, max_version_level=feature.max_level
        )
        for feature in FEATURES
    ]
