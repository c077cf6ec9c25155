"""Turns a classic group into a consumer group and back, while its members go on.

A classic group is upgraded when the first member of the new protocol joins it: its members become members of the
consumer group that speak the classic protocol, with what they own. A consumer group is downgraded when its last member
of the new protocol leaves, or is replaced by a static member that speaks the classic one.
"""

from __future__ import annotations

from barnabas.errors import GroupIdNotFound
from barnabas.groups.classic_group import ClassicGroup, Member
from barnabas.groups.consumer_group import (
    NOTHING_ASSIGNED,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    named_partitions,
)
from barnabas.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedConsumerProtocol,
    build_assignment,
    by_topic_id,
    parse_assignment,
    parse_subscription,
)
from barnabas.groups.settings import GroupSettings
from barnabas.groups.topics import Topics


def can_upgrade(group: ClassicGroup, settings: GroupSettings) -> bool:
    return (
        settings.can_upgrade
        and group.uses_consumer_protocol
        and len(group.members) <= settings.consumer_max_size
    )


def can_downgrade(
    group: ConsumerGroup, leaving: list[ConsumerMember], settings: GroupSettings, *, is_replaced: bool
) -> bool:
    """Whether only members of the classic protocol, and some of them, would be left."""
    left = len(group.members) - len(leaving)
    staying_classic = group.classic_member_count - sum(each.uses_classic_protocol for each in leaving)
    size = left + (1 if is_replaced else 0)
    return (
        staying_classic == left
        and not all(each.uses_classic_protocol for each in leaving)
        and size > 0
        and settings.can_downgrade
        and size <= settings.group_max_size
    )


def upgraded(group: ClassicGroup, image: Topics) -> ConsumerGroup:
    """The same group, as far as a consumer group can be. Raises GroupIdNotFound if members make no sense."""
    consumer = ConsumerGroup(group.group_id)
    consumer.group_epoch = consumer.assignment_epoch = group.generation_id
    try:
        for member in group.members.values():
            upgraded_member = _upgraded_member(consumer, group, member, image)
            consumer.update_member(upgraded_member)
            consumer.target[member.member_id] = {
                topic_id: frozenset(partitions) for topic_id, partitions in upgraded_member.assigned.items()
            }
    except MalformedConsumerProtocol as error:
        raise GroupIdNotFound(
            f"Cannot upgrade the classic group {group.group_id} to consumer group because the embedded consumer"
            f" protocol is malformed."
        ) from error
    return consumer


def _upgraded_member(
    consumer: ConsumerGroup, group: ClassicGroup, member: Member, image: Topics
) -> ConsumerMember:
    epoch = group.generation_id
    # Before its first generation a group has not agreed on a protocol yet.
    metadata = member.protocols.get(group.protocol_name or "", next(iter(member.protocols.values())))
    subscription = parse_subscription(metadata)
    # In the middle of a rebalance there may be no assignment; then the member has said what it owns.
    partitions = parse_assignment(member.assignment) if member.assignment else subscription.owned
    assigned = by_topic_id(partitions, image)
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned={
            topic_id: free
            for topic_id, indexes in assigned.items()
            if (free := {each: epoch for each in sorted(indexes) if consumer.owner(topic_id, each) is None})
        },
        classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols.items())),
    )


def downgraded(
    group: ConsumerGroup,
    leaving_ids: set[str],
    joining: ConsumerMember | None,
    image: Topics,
    now_ms: int,
) -> ClassicGroup:
    """The same group without those who leave, and with the one who joins in place of a static member."""
    classic = ClassicGroup(group.group_id, now_ms)
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    members = [member for member in group.members.values() if member.member_id not in leaving_ids]
    targets = {member.member_id: group.target.get(member.member_id, NOTHING_ASSIGNED) for member in members}
    if joining is not None:
        members.append(joining)
        targets[joining.member_id] = group.target_of(joining)
    for member in members:
        assert member.classic is not None
        classic.add(
            Member(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=dict(member.classic.protocols),
            )
        )
    classic.settle(group.group_epoch)
    assert classic.protocol_name is not None
    for each in classic.members.values():
        try:
            version = parse_subscription(each.protocols[classic.protocol_name]).version
        except MalformedConsumerProtocol:
            version = 0
        each.assignment = build_assignment(named_partitions(targets[each.member_id], image), version)
    return classic
