"""Moves a member towards its target, one step per heartbeat.

    STABLE ──the target changed──▶ UNREVOKED_PARTITIONS ──the member does not own them any more──▶ …
                    │                                                                          │
                    ├──others still own what it is to get──▶ UNRELEASED_PARTITIONS ◀───────────┤
                    └──all is free──▶ STABLE at the target's epoch ◀───────────────────────────┘

While the member has partitions to revoke it stays in its epoch. After that it moves to the target's epoch, and each new
partition is added as soon as no other member owns it. Topics that it no longer subscribes to are removed at once,
whatever the target says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from barnabas.errors import FencedMemberEpoch
from barnabas.groups.consumer_group import (
    Assignment,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
)
from barnabas.groups.topics import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    epoch: int
    partitions: Assignment


Reported = dict[TopicId, frozenset[int]]
"""The partitions that a member claims to own."""


def reconcile(
    group: ConsumerGroup,
    member: ConsumerMember,
    target: Target,
    topic_ids: frozenset[TopicId],
    reported: Reported | None,
    *,
    has_subscription_changed: bool,
) -> ConsumerMember:
    """The member after this step, or itself; `topic_ids` are what it subscribes to."""
    if not has_subscription_changed and member.is_reconciled_to(target.epoch):
        return member
    if member.state is MemberState.STABLE:
        if member.member_epoch != target.epoch:
            return _next(group, member, target, topic_ids, reported)
        return _without_unsubscribed(member, topic_ids, reported)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(reported, member.pending_revocation):
            return _without_unsubscribed(member, topic_ids, reported) if has_subscription_changed else member
        return _next(group, member, target, topic_ids, reported)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _next(group, member, target, topic_ids, reported)
    # A state that a later release has written.
    if reported is None or reported:
        raise FencedMemberEpoch(
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
        )
    return _next(group, replace(member, member_epoch=target.epoch), target, topic_ids, reported)


def _still_owns(reported: Reported | None, pending: OwnedPartitions) -> bool:
    """A member that does not say owns all it had."""
    if reported is None:
        return True
    return any(
        not partitions.isdisjoint(pending[topic_id])
        for topic_id, partitions in reported.items()
        if topic_id in pending
    )


def _without_unsubscribed(
    member: ConsumerMember, topic_ids: frozenset[TopicId], reported: Reported | None
) -> ConsumerMember:
    gone = [topic_id for topic_id in member.assigned if topic_id not in topic_ids]
    if not gone:
        return member
    assigned = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id in topic_ids}
    pending = dict(member.pending_revocation)
    for topic_id in gone:
        pending[topic_id] = {**pending.get(topic_id, {}), **member.assigned[topic_id]}
    if _still_owns(reported, pending):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, pending)
    return _moved(member, member.state, member.member_epoch, assigned, member.pending_revocation)


def _next(
    group: ConsumerGroup,
    member: ConsumerMember,
    target: Target,
    topic_ids: frozenset[TopicId],
    reported: Reported | None,
) -> ConsumerMember:
    assigned: dict[TopicId, dict[int, int]] = {}
    revoked: dict[TopicId, dict[int, int]] = {}
    is_waiting = False
    coming: list[tuple[TopicId, int]] = []
    for topic_id in _all_topics(target.partitions, member.assigned):
        wanted = target.partitions.get(topic_id, frozenset()) if topic_id in topic_ids else frozenset()
        owned = member.assigned.get(topic_id, {})
        kept = {partition: epoch for partition, epoch in owned.items() if partition in wanted}
        lost = {partition: epoch for partition, epoch in owned.items() if partition not in wanted}
        if kept:
            assigned[topic_id] = kept
        if lost:
            revoked[topic_id] = lost
        given_up = member.pending_revocation.get(topic_id, {})
        for partition in sorted(wanted - owned.keys()):
            # Partitions that the member itself is revoking are free for it.
            if partition in given_up or group.owner(topic_id, partition) is None:
                coming.append((topic_id, partition))
            else:
                is_waiting = True
    if revoked and _still_owns(reported, revoked):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, revoked)
    for topic_id, partition in coming:
        assigned.setdefault(topic_id, {})[partition] = target.epoch
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _moved(member, state, target.epoch, assigned, {})


def _all_topics(target: Assignment, owned: OwnedPartitions) -> Iterable[TopicId]:
    return dict.fromkeys((*target, *owned))


def _moved(
    member: ConsumerMember,
    state: MemberState,
    member_epoch: int,
    assigned: OwnedPartitions,
    pending_revocation: OwnedPartitions,
) -> ConsumerMember:
    return replace(
        member,
        state=state,
        member_epoch=member_epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )
