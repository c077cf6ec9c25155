"""Racks: members read from replicas that are near to them (KIP-881).

Members have `client.rack`, replicas the `broker.rack` of their brokers. A partition is near to a member if a replica is
in the member's rack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from barnabas.client.groups.assignors.base import Assignments, Member, PartitionRacks
from barnabas.model import TopicPartition

# Partitions of one kind are the same for an exchange: of one topic, or of any where all want all, in the same racks.
Kind = tuple[str, frozenset[str]]


def is_near(member: Member, racks: frozenset[str]) -> bool:
    """Whether a replica is in the member's rack; all partitions are near to a member without a rack."""
    return not member.rack_id or member.rack_id in racks


def racks_matter(of_partitions: Collection[frozenset[str]], members: Iterable[Member]) -> bool:
    """If every partition has a replica in every rack, or none is in a rack of a member, racks make no difference."""
    all_racks = frozenset[str]().union(*of_partitions)
    has_match = any(member.rack_id in all_racks for member in members)
    return has_match and any(each != all_racks for each in of_partitions)


def exchange_partitions(members: Sequence[Member], assignments: Assignments, racks: PartitionRacks) -> None:
    """Exchanges partitions, two at a time, as long as more of them come near to their members.

    A member has as many partitions as before, and of each topic as many as before unless all members want the same
    topics; then a member may also give one to a member that has one less. So the balance stays. Each step brings
    at least one partition near, so it ends.
    """
    exchange = _Exchange(members, assignments, racks)
    # A step for one member may open another step for one before it.
    while any(exchange.improve(member) for member in members):
        pass
    exchange.write(assignments)


class _Exchange:
    def __init__(self, members: Sequence[Member], assignments: Assignments, racks: PartitionRacks) -> None:
        self._members = members
        self._is_uniform = len({member.topics for member in members}) <= 1
        self._held: dict[str, dict[Kind, list[TopicPartition]]] = {}
        self._loads = {name: len(partitions) for name, partitions in assignments.items()}
        for name, partitions in assignments.items():
            by_kind = self._held[name] = {}
            for each in sorted(partitions):
                kind = "" if self._is_uniform else each.topic, racks.get(each, frozenset())
                by_kind.setdefault(kind, []).append(each)

    def write(self, assignments: Assignments) -> None:
        for name, by_kind in self._held.items():
            assignments[name] = [each for partitions in by_kind.values() for each in partitions]

    def improve(self, giver: Member) -> bool:
        """Whether anything was exchanged for partitions that are far from this member."""
        is_changed = False
        for kind in [each for each in self._held[giver.member_id] if not is_near(giver, each[1])]:
            while kind in self._held[giver.member_id] and self._give(giver, kind):
                is_changed = True
        return is_changed

    def _give(self, giver: Member, kind: Kind) -> bool:
        """Gives one partition of the kind to a member that it is near to, for one that makes nothing worse."""
        steps = [
            step
            for taker in self._members
            if is_near(taker, kind[1])
            for step in self._steps(giver, kind, taker)
        ]
        if not steps:
            return False
        _, taker, back = max(steps, key=lambda step: step[0])
        self._move(giver.member_id, taker.member_id, kind)
        if back is not None:
            self._move(taker.member_id, giver.member_id, back)
        return True

    def _steps(self, giver: Member, kind: Kind, taker: Member) -> Iterator[tuple[int, Member, Kind | None]]:
        """What the taker may give back, with its worth: nothing is better than a partition that gains nothing."""
        if self._is_uniform and self._loads[giver.member_id] > self._loads[taker.member_id]:
            yield 1, taker, None
        for back in self._held[taker.member_id]:
            gain = is_near(giver, back[1]) - is_near(taker, back[1])
            if back[0] == kind[0] and back != kind and gain >= 0:
                yield 2 * gain, taker, back

    def _move(self, giver: str, taker: str, kind: Kind) -> None:
        partition = self._held[giver][kind].pop()
        if not self._held[giver][kind]:
            del self._held[giver][kind]
        self._held[taker].setdefault(kind, []).append(partition)
        self._loads[giver] -= 1
        self._loads[taker] += 1
