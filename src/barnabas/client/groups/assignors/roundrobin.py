"""roundrobin: all partitions of all topics in order, dealt out to the members in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.client.groups.assignors.base import Assignments, Assignor, Member, PartitionRacks
from barnabas.model import TopicPartition


class RoundRobinAssignor(Assignor):
    name = "roundrobin"

    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Sequence[Member],
        racks: PartitionRacks | None = None,
    ) -> Assignments:
        assignments: Assignments = {member.member_id: [] for member in members}
        ordered = sorted(members, key=lambda member: member.order)
        subscribed_topics = {topic for member in members for topic in member.topics}
        turn = 0
        for topic in sorted(subscribed_topics & partition_counts.keys()):
            for number in range(partition_counts[topic]):
                # Ends within a round: at least one member has subscribed to the topic.
                while topic not in ordered[turn % len(ordered)].topics:
                    turn += 1
                assignments[ordered[turn % len(ordered)].member_id].append(TopicPartition(topic, number))
                turn += 1
        return assignments
