"""The features of a cluster (KIP-584): which levels this broker supports, and which levels the cluster has finalized.

In a cluster with ZooKeeper the finalized levels are in the node `/feature`; a feature that is not there is at level 0.
A broker that does not support a finalized level must not run. So a broker that knows no features, such as Kafka 3.9,
stays out of a cluster whose groups and transactions it would misread.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"

# A cluster whose finalized features are unknown, or that does not use features. Clients ignore such an answer.
NO_FEATURES_EPOCH: Final = -1


class LevelRange(NamedTuple):
    """Levels of a feature that a broker supports, both inclusive."""

    min_level: int
    max_level: int

    def __str__(self) -> str:
        return f"{self.min_level}-{self.max_level}"


NOT_SUPPORTED: Final = LevelRange(0, 0)
SupportedFeatures = Mapping[str, LevelRange]

SUPPORTED: Final[SupportedFeatures] = MappingProxyType(
    {
        # Level 1: the broker assigns partitions to the members of groups (KIP-848).
        GROUP_VERSION: LevelRange(0, 1),
        # Level 2: writing to a partition adds it to the transaction, and each transaction has its own epoch (KIP-890).
        TRANSACTION_VERSION: LevelRange(0, 2),
    }
)


class FinalizedFeatures(NamedTuple):
    # The version of the node: a larger one is newer.
    epoch: int
    levels: Mapping[str, int]

    def level(self, name: str) -> int:
        return self.levels.get(name, 0)


NO_FEATURES: Final = FinalizedFeatures(NO_FEATURES_EPOCH, MappingProxyType({}))
# A single node always has all features at their highest levels.
LATEST: Final = FinalizedFeatures(
    0, MappingProxyType({name: supported.max_level for name, supported in SUPPORTED.items()})
)


def unsupported_features(levels: Mapping[str, int], supported: SupportedFeatures) -> list[str]:
    """Finalized features that a broker does not support at their level, each in words."""
    return [
        f"{name} at level {level}"
        for name, level in sorted(levels.items())
        if not _has(supported.get(name, NOT_SUPPORTED), level)
    ]


def _has(supported: LevelRange, level: int) -> bool:
    return supported.min_level <= level <= supported.max_level
