"""sticky and cooperative-sticky: members keep their partitions as far as the load stays balanced.

Both find their assignment in the same three steps: members keep the partitions that they claim to own; partitions
without an owner go to the least loaded member that subscribes to their topic; then partitions move from loaded members
to those with at least two fewer, until none can. If all members subscribe to the same topics, this moves as few
partitions as possible. With racks, members then exchange partitions that are near to the other (`racks.py`): as in
Kafka, a replica in the member's rack counts for more than the partition that it had before.

They differ in how members report their partitions. The user data of sticky, all big-endian:

    topics int32 | (name length int16 | name | partitions int32 | partition int32 each) each | generation int32

Its members revoke everything before they join, so their owned partitions are only here; the generation is missing in
the oldest form. cooperative-sticky takes owned partitions and generation from the subscription itself, and its user
data is the generation, int32, for leaders that only know subscriptions before version 2. A partition that moves to
another member is omitted from the assignment: its owner revokes it first, and the next round assigns it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from struct import Struct, error
from typing import Final

from barnabas.client.groups.assignors.base import NO_GENERATION, Assignments, Assignor, Member, PartitionRacks
from barnabas.client.groups.assignors.racks import exchange_partitions, is_near, racks_matter
from barnabas.model import TopicPartition

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class StickyAssignor(Assignor):
    name = "sticky"

    def __init__(self) -> None:
        self._owned: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Sequence[Member],
        racks: PartitionRacks | None = None,
    ) -> Assignments:
        owned: dict[str, tuple[int, Iterable[TopicPartition]]] = {}
        for member in members:
            partitions, generation = decode_user_data(member.user_data)
            owned[member.member_id] = generation, partitions
        return balance(partition_counts, members, owned, racks)

    def user_data(self) -> bytes | None:
        return None if self._owned is None else encode_user_data(self._owned, self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        self._owned = tuple(partitions)
        self._generation = generation


class CooperativeStickyAssignor(Assignor):
    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Sequence[Member],
        racks: PartitionRacks | None = None,
    ) -> Assignments:
        owned = {member.member_id: (_generation_of(member), member.owned) for member in members}
        assignments = balance(partition_counts, members, owned, racks)
        given_up = {
            partition
            for member in members
            for partition in set(member.owned).difference(assignments[member.member_id])
        }
        for member in members:
            # A member keeps its partition, even if another member claims it too.
            waiting = given_up.difference(member.owned)
            assignments[member.member_id] = [
                partition for partition in assignments[member.member_id] if partition not in waiting
            ]
        return assignments

    def user_data(self) -> bytes | None:
        return _INT32.pack(self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        self._generation = generation


def encode_user_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(partition.partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        name = topic.encode()
        parts += (_INT16.pack(len(name)), name, _INT32.pack(len(numbers)), *map(_INT32.pack, numbers))
    return b"".join((*parts, _INT32.pack(generation)))


def decode_user_data(data: bytes | None) -> tuple[list[TopicPartition], int]:
    """A member's previous partitions and generation; nothing if it does not report them or in an unknown form."""
    partitions: list[TopicPartition] = []
    if not data:
        return partitions, NO_GENERATION
    try:
        topic_count, position = _count(data, 0)
        for _ in range(topic_count):
            (length,) = _INT16.unpack_from(data, position)
            position += _INT16.size
            if length < 0:
                return [], NO_GENERATION
            topic = data[position : position + length].decode()
            count, position = _count(data, position + length)
            for _ in range(count):
                partitions.append(TopicPartition(topic, _INT32.unpack_from(data, position)[0]))
                position += _INT32.size
        if position == len(data):
            return partitions, NO_GENERATION
        return partitions, _INT32.unpack_from(data, position)[0]
    except (error, UnicodeDecodeError):
        return [], NO_GENERATION


def _count(data: bytes, position: int) -> tuple[int, int]:
    """How many elements follow, and where. One that claims more than there are bytes is no count."""
    (count,) = _INT32.unpack_from(data, position)
    if not 0 <= count <= len(data):
        raise error("no count")
    return count, position + _INT32.size


def _generation_of(member: Member) -> int:
    if member.generation != NO_GENERATION:
        return member.generation
    if member.user_data is not None and len(member.user_data) == _INT32.size:
        generation: int = _INT32.unpack(member.user_data)[0]
        return generation
    return NO_GENERATION


def balance(
    partition_counts: Mapping[str, int],
    members: Sequence[Member],
    owned: Mapping[str, tuple[int, Iterable[TopicPartition]]],
    racks: PartitionRacks | None = None,
) -> Assignments:
    """Balanced assignments that keep as many owned partitions as possible; they are given with their generation."""
    racks = racks if racks and racks_matter(racks.values(), members) else {}
    ordered = sorted(members, key=lambda member: member.order)
    assignments: Assignments = {member.member_id: [] for member in members}
    for partition, member_id in _owners(partition_counts, ordered, owned).items():
        assignments[member_id].append(partition)
    _assign_ownerless(partition_counts, ordered, assignments, racks)
    _move_to_balance(ordered, assignments)
    if racks:
        exchange_partitions(ordered, assignments, racks)
    return {member_id: sorted(partitions) for member_id, partitions in assignments.items()}


def _owners(
    partition_counts: Mapping[str, int],
    members: Sequence[Member],
    owned: Mapping[str, tuple[int, Iterable[TopicPartition]]],
) -> dict[TopicPartition, str]:
    """The member that keeps a partition: of several claimants the one of the latest generation, and none of equals."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        generation, partitions = owned[member.member_id]
        for partition in partitions:
            topic, number = partition
            if topic not in member.topics or not 0 <= number < partition_counts.get(topic, 0):
                continue
            claimed, owner = claims.get(partition, (NO_GENERATION - 1, None))
            if generation > claimed:
                claims[partition] = generation, member.member_id
            elif generation == claimed and owner != member.member_id:
                claims[partition] = generation, None
    return {partition: owner for partition, (_, owner) in claims.items() if owner is not None}


def _assign_ownerless(
    partition_counts: Mapping[str, int],
    members: Sequence[Member],
    assignments: Assignments,
    racks: PartitionRacks,
) -> None:
    """Topics that few members want come first, as they leave the least choice."""
    wanting: dict[str, list[int]] = defaultdict(list)
    for index, member in enumerate(members):
        for topic in member.topics:
            wanting[topic].append(index)
    assigned = {partition for partitions in assignments.values() for partition in partitions}
    for topic in sorted(
        wanting.keys() & partition_counts.keys(), key=lambda topic: (len(wanting[topic]), topic)
    ):
        loads = [(len(assignments[members[index].member_id]), index) for index in wanting[topic]]
        heapq.heapify(loads)
        for number in range(partition_counts[topic]):
            partition = TopicPartition(topic, number)
            if partition not in assigned:
                load, index = loads[0]
                if racks:
                    load, index = min(
                        loads, key=partial(_distance, members, racks.get(partition, frozenset()))
                    )
                    loads[loads.index((load, index))] = load + 1, index
                else:
                    heapq.heapreplace(loads, (load + 1, index))
                assignments[members[index].member_id].append(partition)


def _distance(
    members: Sequence[Member], racks: frozenset[str], loaded: tuple[int, int]
) -> tuple[int, bool, int]:
    """The order in which members get a partition: the least loaded, and of these one that it is near to."""
    load, index = loaded
    return load, not is_near(members[index], racks), index


def _move_to_balance(members: Sequence[Member], assignments: Assignments) -> None:
    """Moves one partition at a time, from the most loaded member.

    Each move narrows a distance above one, so it ends.
    """
    wanting: dict[str, list[str]] = defaultdict(list)
    for member in members:
        for topic in member.topics:
            wanting[topic].append(member.member_id)
    loads = {member_id: len(partitions) for member_id, partitions in assignments.items()}
    held: dict[str, dict[str, list[TopicPartition]]] = {member_id: {} for member_id in assignments}
    for member_id, partitions in assignments.items():
        for partition in sorted(partitions):
            held[member_id].setdefault(partition.topic, []).append(partition)
    while move := _next_move(loads, held, wanting):
        giver, topic, taker = move
        partition = held[giver][topic].pop()
        if not held[giver][topic]:
            del held[giver][topic]
        held[taker].setdefault(topic, []).append(partition)
        loads[giver] -= 1
        loads[taker] += 1
    for member_id, by_topic in held.items():
        assignments[member_id] = [partition for partitions in by_topic.values() for partition in partitions]


def _next_move(
    loads: dict[str, int], held: Mapping[str, Mapping[str, object]], wanting: Mapping[str, list[str]]
) -> tuple[str, str, str] | None:
    lightest = min(loads.values(), default=0)
    for giver in sorted(loads, key=loads.__getitem__, reverse=True):
        if loads[giver] - lightest <= 1:
            return None
        # For one topic no member may have less, and for another one may.
        takers = [(min(wanting[topic], key=loads.__getitem__), topic) for topic in held[giver]]
        taker, topic = min(takers, key=lambda each: loads[each[0]])
        if loads[giver] - loads[taker] > 1:
            return giver, topic, taker
    return None
