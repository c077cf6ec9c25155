"""Uniform assignment where members subscribe to different topics.

Each member first keeps what it was to own and still subscribes to. Partitions without an owner then go to whichever
subscriber has least. At last, topic by topic, the subscriber with most gives to the one with least for as long as that
brings them nearer to each other; this is repeated until nothing moves, or sixteen times.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from typing import Final

from barnabas.groups.assignors import NO_OWNER, GroupAssignment, GroupSpec
from barnabas.groups.topics import TopicId

_ROUNDS_MAX: Final = 16


def assign_balanced(spec: GroupSpec) -> GroupAssignment:
    return _Balance(spec).build()


class _Balance:
    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        # Members are numbered, in the order of the group.
        self._member_ids = list(spec.members)
        self._sizes = [0] * len(self._member_ids)
        self._subscribers: dict[TopicId, list[int]] = {}
        for number, member in enumerate(spec.members.values()):
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(number)
        self._owners = {
            topic_id: [NO_OWNER] * spec.partition_counts[topic_id] for topic_id in self._subscribers
        }
        # Those with most partitions for each of their subscribers have least room to move: they come first.
        self._topic_ids = sorted(
            self._subscribers,
            key=lambda topic_id: (
                -spec.partition_counts[topic_id] / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
                topic_id,
            ),
        )

    def build(self) -> GroupAssignment:
        self._keep()
        for topic_id in self._topic_ids:
            self._assign_free(topic_id)
        self._balance()
        assignment: dict[str, dict[TopicId, set[int]]] = {member_id: {} for member_id in self._member_ids}
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                if owner != NO_OWNER:
                    assignment[self._member_ids[owner]].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
            for member_id, owned in assignment.items()
        }

    def _keep(self) -> None:
        for number, member in enumerate(self._spec.members.values()):
            for topic_id, partitions in member.target.items():
                if topic_id in member.topic_ids:
                    owners = self._owners[topic_id]
                    for partition in partitions:
                        if partition < len(owners) and owners[partition] == NO_OWNER:
                            owners[partition] = number
                            self._sizes[number] += 1

    def _assign_free(self, topic_id: TopicId) -> None:
        owners = self._owners[topic_id]
        free = [partition for partition, owner in enumerate(owners) if owner == NO_OWNER]
        if not free:
            return
        least = [(self._sizes[number], number) for number in self._subscribers[topic_id]]
        heapify(least)
        for partition in free:
            size, number = least[0]
            heapreplace(least, (size + 1, number))
            owners[partition] = number
            self._sizes[number] += 1

    def _balance(self) -> None:
        movable = [topic_id for topic_id in self._topic_ids if len(self._subscribers[topic_id]) > 1]
        for _ in range(_ROUNDS_MAX):
            moved = 0
            for topic_id in movable:
                moved += self._balance_topic(topic_id)
            if not moved:
                return

    def _balance_topic(self, topic_id: TopicId) -> int:
        sizes = self._sizes
        subscribers = self._subscribers[topic_id]
        if max(sizes[number] for number in subscribers) - min(sizes[number] for number in subscribers) <= 1:
            return 0
        owners = self._owners[topic_id]
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            held.setdefault(owner, []).append(partition)
        least = [(sizes[number], number) for number in subscribers]
        # Only members with partitions of this topic can give any.
        most = [(-sizes[number], -number) for number in subscribers if number in held]
        heapify(least)
        heapify(most)
        moved = 0
        while most:
            size, receiver = least[0]
            if size != sizes[receiver]:
                heapreplace(least, (sizes[receiver], receiver))
                continue
            negative, negated = most[0]
            giver = -negated
            if -negative != sizes[giver]:
                heapreplace(most, (-sizes[giver], negated))
                continue
            if sizes[giver] - sizes[receiver] <= 1:
                break
            if not held[giver]:
                most[0] = most[-1]
                most.pop()
                heapify(most)
                continue
            partition = held[giver].pop()
            owners[partition] = receiver
            sizes[giver] -= 1
            sizes[receiver] += 1
            moved += 1
        return moved
