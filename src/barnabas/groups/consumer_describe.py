"""ConsumerGroupDescribe: a consumer group as clients see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.groups.consumer_group import (
    NOTHING_ASSIGNED,
    ConsumerGroup,
    ConsumerMember,
    named_partitions,
)
from barnabas.groups.topics import TopicId, Topics
from barnabas.protocol.messages.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def describe_consumer_group(group: ConsumerGroup, default_assignor: str, image: Topics) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscribed_topic_names),
                subscribed_topic_regex=member.subscribed_topic_regex,
                assignment=_assignment(_held(member), image),
                target_assignment=_assignment(group.target.get(member.member_id, NOTHING_ASSIGNED), image),
                member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
            )
            for member in group.members.values()
        ],
    )


def _held(member: ConsumerMember) -> dict[TopicId, list[int]]:
    """The member owns the partitions that it has to revoke until it has revoked them."""
    held: dict[TopicId, list[int]] = {}
    for topic_id, partition in member.owned_partitions():
        held.setdefault(topic_id, []).append(partition)
    return held


def _assignment(partitions: Mapping[TopicId, Iterable[int]], image: Topics) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=image.topics[name].id, topic_name=name, partitions=indexes)
            for name, indexes in named_partitions(partitions, image).items()
        ]
    )
