"""range: topic by topic, each member gets a run of consecutive partitions, the first members one more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.client.groups.assignors.base import Assignments, Assignor, Member
from barnabas.model import TopicPartition


class RangeAssignor(Assignor):
    name = "range"

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[Member]) -> Assignments:
        assignments: Assignments = {member.member_id: [] for member in members}
        ordered = sorted(members, key=lambda member: member.order)
        for topic in sorted(partition_counts):
            subscribed = [member.member_id for member in ordered if topic in member.topics]
            if not subscribed:
                continue
            each, extra = divmod(partition_counts[topic], len(subscribed))
            start = 0
            for index, member_id in enumerate(subscribed):
                end = start + each + (index < extra)
                assignments[member_id] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return assignments
