"""Features of a cluster that clients look at, with the level that is in use. Ours are always at their highest."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.protocol.messages.api_versions_response import FinalizedFeatureKey, SupportedFeatureKey

# Counts changes of levels, of which there are none. Clients leave features alone whose epoch is below 0.
FEATURES_EPOCH: Final = 0
# Clients before it cannot read a feature that may be at level 0.
_FIRST_WITH_LEVEL_0: Final = 4


class Feature(NamedTuple):
    name: str
    min_level: int
    max_level: int


FEATURES: Final = (
    # Releases of Kafka: level 7 is 3.3, level 30 is 4.3. Tools take it for the version of the cluster.
    Feature("metadata.version", 7, 30),
    # Level 1: groups whose members the broker assigns (KIP-848).
    Feature("group.version", 0, 1),
    # Level 2: writing adds a partition to the transaction, and each transaction has its own epoch (KIP-890).
    Feature("transaction.version", 0, 2),
)


def supported_features(version: int) -> list[SupportedFeatureKey]:
    """As ApiVersions of the version lists them."""
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
