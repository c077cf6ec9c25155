"""Range: each topic is cut into as many runs of partitions as it has subscribers, longer ones first.

Members are taken in the order of their instance ids, then of their member ids; so members that subscribe alike own the
same partitions of topics that have as many.
"""

from __future__ import annotations

from collections import Counter

from barnabas.groups.assignors import GroupAssignment, GroupSpec
from barnabas.groups.topics import TopicId


def assign_range(spec: GroupSpec) -> GroupAssignment:
    member_ids = sorted(spec.members, key=lambda member_id: _order(spec, member_id))
    subscriber_counts: Counter[TopicId] = Counter()
    for member in spec.members.values():
        subscriber_counts.update(member.topic_ids)
    ranks: Counter[TopicId] = Counter()
    assignment: GroupAssignment = {}
    for member_id in member_ids:
        owned: dict[TopicId, frozenset[int]] = {}
        for topic_id in spec.members[member_id].topic_ids:
            quota, extra = divmod(spec.partition_counts[topic_id], subscriber_counts[topic_id])
            rank = ranks[topic_id]
            ranks[topic_id] += 1
            start = rank * quota + min(rank, extra)
            end = start + quota + (1 if rank < extra else 0)
            if start < end:
                owned[topic_id] = frozenset(range(start, end))
        assignment[member_id] = owned
    return assignment


def _order(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
