"""The assignment of a new topic's partitions to brokers.

The rule is that of Apache Kafka outside of KRaft: the first replicas go round the brokers from a random one, each next
replica is a shift further, and the shift grows by one whenever the round is complete. Four brokers, three replicas, and
a draw of zero:

    broker             0       1       2       3
    first replicas     p0 p4   p1 p5   p2 p6   p3 p7
    second             p3 p6   p0 p7   p1 p4   p2 p5
    third              p2 p5   p3 p6   p0 p7   p1 p4

If every broker has a rack, brokers are first ordered so that they alternate between racks, and a replica goes to a rack
that has none yet as long as there is one. A broker without a rack is a rack of its own: then the same steps give the
plain rule above.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from barnabas.coordination.metadata.image import BrokerImage
from barnabas.errors import InvalidReplicationFactor
from barnabas.model import BrokerId


def place_replicas(
    brokers: Iterable[BrokerImage],
    partition_count: int,
    replication_factor: int,
    *,
    rng: Random,
    first_partition: int = 0,
    after: BrokerId | None = None,
) -> list[tuple[BrokerId, ...]]:
    """The replicas of each partition, the preferred leader first. Raises InvalidReplicationFactor.

    Additional partitions continue the round that began at the broker `after`, without a draw.
    """
    racks = _racks(brokers)
    order = _alternating(racks)
    if replication_factor > len(order):
        raise InvalidReplicationFactor(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(order)}"
            " broker(s) are registered."
        )
    if after is None:
        start, shift = rng.randrange(len(order)), rng.randrange(len(order))
    else:
        ids = sorted(order)
        start = shift = next((index for index, each in enumerate(ids) if each >= after), 0)
    rack_of = {broker: index for index, rack in enumerate(racks) for broker in rack}
    placed = []
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(order) == 0:
            shift += 1
        first = (start + partition) % len(order)
        placed.append(_replicas(order, rack_of, len(racks), first, shift, replication_factor))
    return placed


def _replicas(
    order: Sequence[BrokerId],
    rack_of: dict[BrokerId, int],
    rack_count: int,
    first: int,
    shift: int,
    replication_factor: int,
) -> tuple[BrokerId, ...]:
    chosen = [order[first]]
    racks = {rack_of[order[first]]}
    distance = shift * rack_count
    # A walk over all brokers meets one in each rack, so that few rounds fill the list.
    while len(chosen) < replication_factor:
        broker = order[(first + 1 + distance % (len(order) - 1)) % len(order)]
        distance += 1
        rack = rack_of[broker]
        if broker not in chosen and (rack not in racks or len(racks) == rack_count):
            chosen.append(broker)
            racks.add(rack)
    return tuple(chosen)


def _racks(brokers: Iterable[BrokerImage]) -> list[list[BrokerId]]:
    """Brokers by rack, in the order of racks' names and brokers' ids."""
    ordered = sorted(brokers, key=lambda broker: broker.id)
    names = [broker.rack for broker in ordered]
    if any(name is None for name in names):
        return [[broker.id] for broker in ordered]
    by_name: dict[str, list[BrokerId]] = {name: [] for name in sorted({name or "" for name in names})}
    for broker in ordered:
        by_name[broker.rack or ""].append(broker.id)
    return list(by_name.values())


def _alternating(racks: Sequence[Sequence[BrokerId]]) -> list[BrokerId]:
    longest = max((len(rack) for rack in racks), default=0)
    return [rack[index] for index in range(longest) for rack in racks if index < len(rack)]
