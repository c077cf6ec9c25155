"""range: topic by topic, each member gets a run of consecutive partitions, the first members one more.

With racks (`client.rack` of members, `broker.rack` of replicas), a member first gets partitions that have a replica in
its rack, at most its share. The others go to runs as without racks. Topics with the same members and the same number of
partitions stay together: a member that reads partition 1 of one topic reads partition 1 of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from barnabas.client.groups.assignors.base import Assignments, Assignor, Member, PartitionRacks
from barnabas.client.groups.assignors.racks import is_near, racks_matter
from barnabas.model import TopicPartition


class RangeAssignor(Assignor):
    name = "range"

    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Sequence[Member],
        racks: PartitionRacks | None = None,
    ) -> Assignments:
        assignments: Assignments = {member.member_id: [] for member in members}
        ordered = sorted(members, key=lambda member: member.order)
        shares = []
        for topic in sorted(partition_counts):
            subscribed = [member for member in ordered if topic in member.topics]
            if subscribed:
                shares.append(_Share(topic, partition_counts[topic], subscribed, racks or {}))
        if any(share.depends_on_racks for share in shares):
            _match_racks(shares, assignments)
        for share in shares:
            share.assign_runs(assignments)
        for partitions in assignments.values():
            partitions.sort()
        return assignments


class _Share:
    """One topic: the partitions that are left, and how many each member may still get."""

    def __init__(
        self, topic: str, partition_count: int, members: Sequence[Member], racks: PartitionRacks
    ) -> None:
        self.topic = topic
        self.members = members
        self.left = dict.fromkeys(TopicPartition(topic, number) for number in range(partition_count))
        self.partition_count = partition_count
        self._each, self._extra = divmod(partition_count, len(members))
        self._counts = dict.fromkeys((member.member_id for member in members), 0)
        self._racks = racks
        of_partitions = [racks.get(partition, frozenset()) for partition in self.left]
        self.depends_on_racks = racks_matter(of_partitions, members)

    def room_of(self, member: Member) -> int:
        """How many more partitions the member may get."""
        return max(0, self._each + (self._extra > 0) - self._counts[member.member_id])

    def is_near(self, member: Member, partition: TopicPartition) -> bool:
        return is_near(member, self._racks.get(partition, frozenset()))

    def give(self, member: Member, partitions: Sequence[TopicPartition], assignments: Assignments) -> None:
        assignments[member.member_id] += partitions
        self._counts[member.member_id] += len(partitions)
        if self._counts[member.member_id] > self._each:
            self._extra -= 1
        for partition in partitions:
            del self.left[partition]

    def assign_runs(self, assignments: Assignments, *, only_near: bool = False) -> None:
        for member in self.members:
            room = self.room_of(member)
            fitting: Iterable[TopicPartition] = self.left
            if only_near:
                fitting = (partition for partition in self.left if self.is_near(member, partition))
            taken = list(islice(fitting, room))
            if taken:
                self.give(member, taken, assignments)


def _match_racks(shares: Sequence[_Share], assignments: Assignments) -> None:
    """Gives members partitions in their racks, in topics that belong together the same numbers."""
    together: dict[tuple[tuple[str, ...], int], list[_Share]] = {}
    for share in shares:
        ids = tuple(member.member_id for member in share.members)
        together.setdefault((ids, share.partition_count), []).append(share)
    for group in together.values():
        if len(group) > 1:
            _match_numbers(group, assignments)
        elif group[0].depends_on_racks:
            group[0].assign_runs(assignments, only_near=True)


def _match_numbers(group: Sequence[_Share], assignments: Assignments) -> None:
    for number in range(group[0].partition_count):
        for member in group[0].members:
            if all(
                share.room_of(member) and share.is_near(member, TopicPartition(share.topic, number))
                for share in group
            ):
                for share in group:
                    share.give(member, [TopicPartition(share.topic, number)], assignments)
                break
