"""The states of groups, with Kafka's names."""

from __future__ import annotations

import enum


class GroupState(enum.Enum):
    """Of a classic group."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroupState(enum.Enum):
    """Of a group of KIP-848."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
