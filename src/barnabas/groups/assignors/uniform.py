"""Uniform: every member owns as many partitions as any other, plus or minus one, and keeps its partitions if possible.

If all members subscribe to the same topics this is simple: a member with more than its share gives the rest up, and a
member with less gets free partitions. Otherwise see `balanced`.
"""

from __future__ import annotations

from barnabas.groups.assignors import GroupAssignment, GroupSpec
from barnabas.groups.assignors.balanced import assign_balanced
from barnabas.groups.topics import TopicId


def assign_uniform(spec: GroupSpec) -> GroupAssignment:
    if not spec.members:
        return {}
    return _assign_alike(spec) if spec.is_homogeneous else assign_balanced(spec)


def _assign_alike(spec: GroupSpec) -> GroupAssignment:
    topic_ids = sorted(next(iter(spec.members.values())).topic_ids)
    partition_count = sum(spec.partition_counts[topic_id] for topic_id in topic_ids)
    quota, extra = divmod(partition_count, len(spec.members))
    owned: dict[str, dict[TopicId, set[int]]] = {}
    sizes: dict[str, int] = {}
    free = {topic_id: set(range(spec.partition_counts[topic_id])) for topic_id in topic_ids}
    given_up: list[tuple[TopicId, int]] = []
    # Members that own more keep the odd partitions, so that none of them moves.
    by_size = sorted(spec.members, key=lambda member_id: -_kept_count(spec, member_id, free))
    for member_id in by_size:
        room = quota + (1 if extra > 0 else 0)
        kept: dict[TopicId, set[int]] = {}
        size = 0
        for topic_id, partitions in spec.members[member_id].target.items():
            if topic_id not in free:
                continue
            for partition in sorted(partitions & free[topic_id]):
                free[topic_id].discard(partition)
                if size < room:
                    kept.setdefault(topic_id, set()).add(partition)
                    size += 1
                else:
                    given_up.append((topic_id, partition))
        owned[member_id] = kept
        sizes[member_id] = size
        if extra > 0:
            extra -= 1
    unassigned = [(topic_id, partition) for topic_id in topic_ids for partition in sorted(free[topic_id])]
    unassigned += given_up
    _fill(unassigned, owned, sizes, by_size, *divmod(partition_count, len(spec.members)))
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in owned[member_id].items()}
        for member_id in spec.members
    }


def _kept_count(spec: GroupSpec, member_id: str, free: dict[TopicId, set[int]]) -> int:
    return sum(
        len(partitions) for topic_id, partitions in spec.members[member_id].target.items() if topic_id in free
    )


def _fill(
    unassigned: list[tuple[TopicId, int]],
    owned: dict[str, dict[TopicId, set[int]]],
    sizes: dict[str, int],
    member_ids: list[str],
    quota: int,
    extra: int,
) -> None:
    remaining = iter(unassigned)
    for rank, member_id in enumerate(member_ids):
        for _ in range(quota + (1 if rank < extra else 0) - sizes[member_id]):
            found = next(remaining, None)
            if found is None:
                return
            topic_id, partition = found
            owned[member_id].setdefault(topic_id, set()).add(partition)
    assert next(remaining, None) is None, "partitions are left over"
