"""Converts a classic group to a consumer group and back, while its members continue.

A classic group is upgraded when the first member of the new protocol joins it: its members become members of the
consumer group that speak the classic protocol, with their current partitions. A consumer group is downgraded when its
last member of the new protocol leaves, or is replaced by a static member with the classic protocol.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.errors import GroupIdNotFound
from barnabas.groups.classic_group import ClassicGroup, Member
from barnabas.groups.consumer_group import (
    Assignment,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
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
from barnabas.groups.states import GroupState
from barnabas.groups.topics import TopicId, Topics


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
        claims = {
            member_id: _upgrade_member(consumer, group, member, image)
            for member_id, member in group.members.items()
        }
    except MalformedConsumerProtocol as error:
        raise GroupIdNotFound(
            f"Cannot upgrade the classic group {group.group_id} to consumer group because the embedded consumer"
            f" protocol is malformed."
        ) from error
    for member_id, claimed in claims.items():
        member = consumer.members[member_id]
        consumer.target[member_id] = {
            topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()
        }
        # A member that has not heard of its assignment yet still holds what it had.
        held = _free(consumer, claimed, group.generation_id)
        if held:
            consumer.update_member(
                replace(member, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=held)
            )
    return consumer


def _upgrade_member(
    consumer: ConsumerGroup, group: ClassicGroup, member: Member, image: Topics
) -> Assignment:
    """Adds the member; returns what it said it owned when it joined."""
    epoch = group.generation_id
    # Before its first generation a group has not agreed on a protocol yet.
    metadata = member.protocols.get(group.protocol_name or "", next(iter(member.protocols.values())))
    subscription = parse_subscription(metadata)
    # A member that has joined the next generation owns the partitions in its subscription, and the last assignment has
    # no meaning any more.
    has_rejoined = group.state is GroupState.COMPLETING_REBALANCE or member.awaiting_join is not None
    owned = subscription.owned if has_rejoined else parse_assignment(member.assignment)
    consumer.update_member(
        ConsumerMember(
            member_id=member.member_id,
            member_epoch=epoch,
            previous_member_epoch=epoch,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            subscribed_topic_names=frozenset(subscription.topics),
            assigned=_free(consumer, by_topic_id(owned, image), epoch),
            classic=ClassicMetadata(member.session_timeout_ms, tuple(member.protocols.items())),
        )
    )
    return by_topic_id(subscription.owned, image)


def _free(consumer: ConsumerGroup, claimed: Assignment, epoch: int) -> OwnedPartitions:
    """Those of the partitions that no other member owns: members may contradict each other."""
    free = {
        topic_id: {each: epoch for each in sorted(partitions) if consumer.owner(topic_id, each) is None}
        for topic_id, partitions in claimed.items()
    }
    return {topic_id: partitions for topic_id, partitions in free.items() if partitions}


def downgraded(
    group: ConsumerGroup,
    leaving_ids: set[str],
    joining: ConsumerMember | None,
    image: Topics,
    now_ms: int,
) -> ClassicGroup:
    """The same group without the leaving members, and with the joining one in place of a static member.

    Members keep the partitions that they own: they may never have received their targets.
    """
    classic = ClassicGroup(group.group_id, now_ms)
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    members = [member for member in group.members.values() if member.member_id not in leaving_ids]
    if joining is not None:
        members.append(joining)
    owners = {member.member_id: member for member in members}
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
        owned: dict[TopicId, list[int]] = {}
        for topic_id, partition in owners[each.member_id].owned_partitions():
            owned.setdefault(topic_id, []).append(partition)
        each.assignment = build_assignment(named_partitions(owned, image), version)
    return classic
