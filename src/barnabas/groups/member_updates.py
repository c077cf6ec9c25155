"""The effect of a change of one member on its consumer group, in either protocol.

1. The member's record is written if it has changed, and the group epoch increases if its subscriptions or topics have.
2. The target assignment follows the group epoch, but not more often than `consumer.assignment.interval.ms`.
3. The member moves a step closer to its target.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from barnabas.errors import FencedInstanceId, GroupMaxSizeReached, KafkaError, UnknownMemberId
from barnabas.groups.consumer_group import (
    JOIN_EPOCH,
    NOTHING_ASSIGNED,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
    subtract,
)
from barnabas.groups.consumer_records import (
    current_record,
    group_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
    target_record,
)
from barnabas.groups.counts import GroupCounts
from barnabas.groups.group_table import GroupTable
from barnabas.groups.reconciliation import Reported, Target, reconcile
from barnabas.groups.records import GroupRecord
from barnabas.groups.regex_resolution import PAUSE_MS, RegexResolution, compile_regex
from barnabas.groups.settings import GroupOverrides, GroupSettings
from barnabas.groups.target_assignment import compute_target
from barnabas.groups.timers import TimerKey, TimerKind
from barnabas.groups.topics import ids_of, metadata_hash
from barnabas.primitives.decision import Decision

log = logging.getLogger(__name__)

# Expressions of a group are resolved together, and not more often than this.
_REGEX_REFRESH_MIN_MS: Final = 10_000


class RegexChange(enum.Enum):
    NONE = "none"
    UNRESOLVED = "unresolved"
    RESOLVED = "resolved"


Undo: TypeAlias = Callable[[Decision, KafkaError, int], None]


@dataclass(slots=True)
class Work:
    """The effect of one request: the records are written together, or not at all."""

    decision: Decision
    now_ms: int
    records: list[GroupRecord] = field(default_factory=list)
    # Reverts changes that were made before the records, if these are not written.
    undo: Undo | None = None
    # The topics that a regular expression may match; None for all.
    visible_topics: Container[str] | None = None


class MemberUpdates:
    def __init__(self, groups: GroupTable, settings: GroupSettings, counts: GroupCounts) -> None:
        self._groups = groups
        self._settings = settings
        self._counts = counts
        self._resolutions: dict[str, RegexResolution] = {}
        self.overrides: Mapping[str, GroupOverrides] = {}

    def session_timeout_ms(self, group_id: str) -> int:
        overrides = self.overrides.get(group_id)
        own = None if overrides is None else overrides.session_timeout_ms
        return self._settings.consumer_session_timeout_ms if own is None else own

    def heartbeat_interval_ms(self, group_id: str) -> int:
        overrides = self.overrides.get(group_id)
        own = None if overrides is None else overrides.heartbeat_interval_ms
        return self._settings.consumer_heartbeat_interval_ms if own is None else own

    def _assignment_interval_ms(self, group_id: str) -> int:
        overrides = self.overrides.get(group_id)
        own = None if overrides is None else overrides.assignment_interval_ms
        return self._settings.consumer_assignment_interval_ms if own is None else own

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        max_size = self._settings.consumer_max_size
        if len(group.members) >= max_size and member_id not in group.members:
            raise GroupMaxSizeReached(
                f"The consumer group has reached its maximum capacity of {max_size} members."
            )

    def replace_static(
        self, work: Work, group: ConsumerGroup, before: ConsumerMember, member_id: str
    ) -> ConsumerMember:
        """A static member has come back under another id: it keeps all but its epoch."""
        member = replace(
            before, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH
        )
        group_id = group.group_id
        work.records += member_tombstones(group_id, before.member_id)
        work.records.append(member_record(group_id, member))
        target = group.target.get(before.member_id, NOTHING_ASSIGNED)
        work.records.append(target_record(group_id, member_id, target))
        work.records.append(current_record(group_id, member))
        cancel_timers(work.decision, group_id, before.member_id)
        return member

    def subscribe(
        self, work: Work, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember
    ) -> tuple[bool, RegexChange]:
        """Whether it now subscribes to other names, and to another expression. Raises if that is not valid."""
        if member != before:
            work.records.append(member_record(group.group_id, member))
        has_other_names = member.subscribed_topic_names != before.subscribed_topic_names
        return has_other_names, self._update_regexes(work, group, before, member)

    def refresh_metadata(
        self,
        work: Work,
        group: ConsumerGroup,
        before: ConsumerMember,
        member: ConsumerMember,
        *,
        must_bump: bool,
    ) -> int:
        """The group's epoch, which rises if it must or if its topics have changed."""
        if not must_bump and not group.is_metadata_stale:
            return group.group_epoch
        topics = group.topics_after(removed=(before,), added=member)
        if not must_bump:
            reason = "the topics that it reads have changed"
        elif before.member_id in group.members:
            reason = f"member {member.member_id} changed its subscription"
        else:
            reason = f"member {member.member_id} joined"
        return self._next_epoch(work, group, topics, reason, must_bump=must_bump)

    def _next_epoch(
        self, work: Work, group: ConsumerGroup, topics: Iterable[str], reason: str, *, must_bump: bool
    ) -> int:
        epoch = group.group_epoch
        topics_hash = metadata_hash(self._groups.image, topics)
        if must_bump or topics_hash != group.metadata_hash:
            epoch += 1
            self._counts.consumer_rebalances += 1
            work.records.append(group_record(group.group_id, epoch, topics_hash))
            log.info(
                "Rebalancing group %s: bumped group epoch to %d, %d members so far (reason: %s).",
                group.group_id,
                epoch,
                len(group.members),
                reason,
                extra={"group": group.group_id, "epoch": epoch, "reason": reason},
            )
        group.metadata_refreshed(epoch)
        if group.has_partition_metadata_record:
            work.records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def update_target(
        self,
        work: Work,
        group: ConsumerGroup,
        group_epoch: int,
        before: ConsumerMember,
        member: ConsumerMember,
    ) -> Target:
        is_due = (
            group.assignment_timestamp_ms == 0
            or work.now_ms >= group.assignment_timestamp_ms + self._assignment_interval_ms(group.group_id)
        )
        if group_epoch <= group.assignment_epoch or not is_due:
            return Target(epoch=group.assignment_epoch, partitions=group.target_of(member))
        known = before if before.member_id in group.members else group.static_member(member.instance_id)
        assignor = group.preferred_assignor(known, member) or self._settings.consumer_assignors[0]
        partitions = compute_target(
            group, group_epoch, member, assignor, self._groups.image, work.records, work.now_ms
        )
        return Target(epoch=group_epoch, partitions=partitions)

    def reconcile(
        self,
        work: Work,
        group: ConsumerGroup,
        member: ConsumerMember,
        target: Target,
        reported: Reported | None,
        *,
        has_subscription_changed: bool,
    ) -> ConsumerMember:
        topic_ids = ids_of(self._groups.image, group.subscribed_names(member))
        after = reconcile(
            group, member, target, topic_ids, reported, has_subscription_changed=has_subscription_changed
        )
        if after is member or after == member:
            return member
        work.records.append(current_record(group.group_id, after))
        if not after.uses_classic_protocol:
            key = revocation_timer(group.group_id, after.member_id)
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                work.decision.set_timer(key, after.rebalance_timeout_ms)
            else:
                work.decision.cancel_timer(key)
        return after

    def remove(self, work: Work, group: ConsumerGroup, members: list[ConsumerMember], reason: str) -> None:
        group_id = group.group_id
        for member in members:
            work.records += member_tombstones(group_id, member.member_id)
            cancel_timers(work.decision, group_id, member.member_id)
        subscribers = group.regex_subscribers.copy()
        subtract(
            subscribers, (each.subscribed_topic_regex for each in members if each.subscribed_topic_regex)
        )
        unused = [regex for regex in group.resolved_regexes if regex not in subscribers]
        work.records += [regex_tombstone(group_id, regex) for regex in unused]
        topics = group.topics_after(removed=members, removed_regexes=unused)
        self._next_epoch(work, group, topics, reason, must_bump=True)

    def _update_regexes(
        self, work: Work, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember
    ) -> RegexChange:
        old, new = before.subscribed_topic_regex, member.subscribed_topic_regex
        change = RegexChange.NONE
        must_resolve = False
        if old != new:
            change = RegexChange.UNRESOLVED
            if old and group.regex_subscribers[old] == 1 and old in group.resolved_regexes:
                work.records.append(regex_tombstone(group.group_id, old))
            if not new or new in group.resolved_regexes:
                change = RegexChange.RESOLVED
            elif not group.regex_subscribers[new]:
                compile_regex(new)
                must_resolve = True
        if must_resolve or group.regex_subscribers:
            subscribers = group.regex_subscribers.copy()
            if old:
                subtract(subscribers, (old,))
            if new:
                subscribers[new] += 1
            self._resolve(work, group, list(subscribers), must_resolve=must_resolve)
        return change

    def _resolve(self, work: Work, group: ConsumerGroup, regexes: list[str], *, must_resolve: bool) -> None:
        """Starts to resolve all expressions of the group if any is new, topics are, or it was long ago."""
        if group.group_id in self._resolutions or not regexes:
            return
        last = next(iter(group.resolved_regexes.values()), None)
        if last is not None:
            age_ms = work.now_ms - last.timestamp_ms
            if age_ms <= _REGEX_REFRESH_MIN_MS:
                return
            must_resolve = (
                must_resolve
                or len(regexes) != len(group.resolved_regexes)
                or last.version < self._groups.topics_version
                or age_ms > self._settings.consumer_regex_refresh_interval_ms
            )
        if last is None or must_resolve:
            self._resolutions[group.group_id] = RegexResolution(
                regexes, self._groups.image, self._groups.topics_version, work.visible_topics
            )
            work.decision.set_timer(TimerKey(TimerKind.REGEX, group.group_id), PAUSE_MS)

    def resolve_some(self, group_id: str, now_ms: int) -> Decision:
        """The timer of a resolution is due."""
        decision = Decision()
        resolution = self._resolutions.get(group_id)
        if resolution is None:
            return decision
        if not resolution.advance():
            decision.set_timer(TimerKey(TimerKind.REGEX, group_id), PAUSE_MS)
            return decision
        del self._resolutions[group_id]
        group = self._groups.consumer.get(group_id)
        if group is not None:
            work = Work(decision, now_ms)
            self._resolved(work, group, resolution.result(now_ms))
            if work.records:
                # If they are not written they are resolved again, since the group does not know of them.
                decision.append(work.records)
        return decision

    def _resolved(self, work: Work, group: ConsumerGroup, found: dict[str, ResolvedRegex]) -> None:
        topics = group.subscribed_topics.copy()
        has_changed = False
        for regex, resolved in found.items():
            if not group.regex_subscribers[regex]:
                continue
            before = group.resolved_regexes.get(regex)
            topics_before = frozenset[str]() if before is None else before.topics
            if topics_before != resolved.topics:
                has_changed = True
                subtract(topics, topics_before)
                topics.update(resolved.topics)
            work.records.append(regex_record(group.group_id, regex, resolved))
        if work.records:
            topics_hash = metadata_hash(self._groups.image, topics)
            if has_changed or topics_hash != group.metadata_hash:
                reason = "its regular expressions match other topics"
                self._next_epoch(work, group, topics, reason, must_bump=True)

    def forget_resolutions(self) -> None:
        self._resolutions.clear()


def session_timer_of(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group_id, member_id)


def revocation_timer(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.REVOCATION, group_id, member_id)


def join_timer_of(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.MEMBER_JOIN, group_id, member_id)


def sync_timer_of(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.MEMBER_SYNC, group_id, member_id)


def cancel_timers(decision: Decision, group_id: str, member_id: str) -> None:
    for kind in (TimerKind.SESSION, TimerKind.REVOCATION, TimerKind.MEMBER_JOIN, TimerKind.MEMBER_SYNC):
        decision.cancel_timer(TimerKey(kind, group_id, member_id))


def known_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The member of the instance, which must still be the one that asks."""
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        )
    return member
