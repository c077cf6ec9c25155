"""The target assignment of the members of a consumer group, for a group epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.groups.assignors import Assignor, GroupSpec, MemberSpec
from barnabas.groups.assignors.range import assign_range
from barnabas.groups.assignors.uniform import assign_uniform
from barnabas.groups.consumer_group import (
    NOTHING_ASSIGNED,
    Assignment,
    ConsumerGroup,
    ConsumerMember,
)
from barnabas.groups.consumer_records import target_epoch_record, target_record
from barnabas.groups.records import GroupRecord
from barnabas.groups.settings import ASSIGNOR_NAMES
from barnabas.groups.topics import TopicId, Topics, ids_of

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
assert tuple(ASSIGNORS) == ASSIGNOR_NAMES


def compute_target(
    group: ConsumerGroup,
    group_epoch: int,
    updated: ConsumerMember,
    assignor: str,
    image: Topics,
    records: list[GroupRecord],
    now_ms: int,
) -> Assignment:
    """The target of the member that has changed; the targets of all go to the records where they differ."""
    members = {**group.members, updated.member_id: updated}
    previous_id = None if updated.instance_id is None else group.static_members.get(updated.instance_id)
    if previous_id is not None and previous_id != updated.member_id:
        del members[previous_id]
    spec = _specify(group, members, image)
    assignment = ASSIGNORS[assignor](spec)
    for member_id in members:
        target = assignment.get(member_id, NOTHING_ASSIGNED)
        if group.target.get(member_id) != target:
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, group_epoch, now_ms))
    return assignment.get(updated.member_id, NOTHING_ASSIGNED)


def _specify(group: ConsumerGroup, members: Mapping[str, ConsumerMember], image: Topics) -> GroupSpec:
    # Members mostly subscribe alike.
    known: dict[frozenset[str], frozenset[TopicId]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, member in members.items():
        names = group.subscribed_names(member)
        topic_ids = known.get(names)
        if topic_ids is None:
            topic_ids = known[names] = ids_of(image, names)
        specs[member_id] = MemberSpec(
            topic_ids=topic_ids, instance_id=member.instance_id, target=group.target_of(member)
        )
    names_of = image.topic_names
    return GroupSpec(
        members=specs,
        partition_counts={
            topic_id: len(image.topics[names_of[topic_id]].partitions)
            for topic_ids in known.values()
            for topic_id in topic_ids
        },
    )
