"""Which replica a consumer should read from (KIP-392), as `replica.selector.class` decides.

Kafka's RackAwareReplicaSelector prefers a replica in the rack of the consumer: the leader if it is there, else the
in-sync replica that is furthest. Only replicas that have the consumer's offset are considered.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.model import BrokerId
from barnabas.replication.leader import PartitionLeader


def select_in_rack(
    leadership: PartitionLeader,
    leader: BrokerId,
    rack: str,
    fetch_offset: int,
    rack_of: Callable[[BrokerId], str | None],
) -> BrokerId | None:
    """The broker to read from; None if that is the leader."""
    if rack_of(leader) == rack:
        return None
    candidates = [
        remote
        for remote in leadership.remotes
        if remote.broker_id in leadership.in_sync
        and remote.log_start_offset <= fetch_offset <= remote.log_end_offset
        and rack_of(remote.broker_id) == rack
    ]
    if not candidates:
        return None
    return max(
        candidates, key=lambda each: (each.log_end_offset, each.last_caught_up_ms, each.broker_id)
    ).broker_id
