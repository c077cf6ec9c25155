"""A change of the in-sync replicas (ISR) that a leader proposes to the controller."""

from __future__ import annotations

from typing import Final

from barnabas.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    OperationNotAttempted,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, LeaderEpoch
from barnabas.value import Value

# The controller did not apply the change, and the state that it was based on holds.
NOT_APPLIED: Final = frozenset({IneligibleReplica.code, OperationNotAttempted.code})
# The leader is out of date. The change stays pending until the next LeaderAndIsr request.
OUT_OF_DATE: Final = frozenset(
    {
        FencedLeaderEpoch.code,
        InvalidRequest.code,
        InvalidUpdateVersion.code,
        UnknownTopicId.code,
        UnknownTopicOrPartition.code,
    }
)


class IsrChange(Value, kw_only=True):
    leader_epoch: LeaderEpoch
    partition_epoch: int
    """The epoch of the state that the change is based on."""
    in_sync: tuple[BrokerId, ...]
    maximal_in_sync: tuple[BrokerId, ...]
    """The replicas that bound the high watermark until the controller has answered."""
    previous: tuple[BrokerId, ...]
    """The in-sync replicas before the change."""
