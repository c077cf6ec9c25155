"""ConsumerGroupHeartbeat: members of the new protocol join, follow and leave their group.

A heartbeat with epoch 0 joins, -1 leaves, -2 leaves for a while (a static member, whose partitions are kept for it).
Any other epoch must be the member's epoch, or the one before with no partitions except its own: then the last response
was lost. A field that a member does not repeat is unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from barnabas.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    InvalidRequest,
    KafkaError,
    RebalanceInProgress,
    RequestTimedOut,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from barnabas.groups.caller import Caller
from barnabas.groups.classic_group import ClassicGroup
from barnabas.groups.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
)
from barnabas.groups.consumer_records import (
    consumer_group_records,
    consumer_group_tombstones,
    current_record,
)
from barnabas.groups.group_table import GroupTable
from barnabas.groups.member_updates import (
    MemberUpdates,
    RegexChange,
    Undo,
    Work,
    cancel_timers,
    known_static,
    revocation_timer,
    session_timer_of,
)
from barnabas.groups.migration import can_downgrade, can_upgrade, downgraded, upgraded
from barnabas.groups.rebalance import (
    DOWNGRADED,
    Rebalance,
    answer_parked,
    bury,
    join_timer,
    session_timer,
    sync_timer,
)
from barnabas.groups.reconciliation import Reported
from barnabas.groups.records import group_tombstone
from barnabas.groups.settings import GroupSettings
from barnabas.groups.states import GroupState
from barnabas.groups.timers import TimerKey, TimerKind
from barnabas.primitives.decision import Decision, error_of_failed_append
from barnabas.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_LEAVE_EPOCHS: Final = (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)
_NOT_GIVEN: Final = -1
# Before, the broker gave a member its id.
_FIRST_WITH_MEMBER_ID: Final = 1
# Members may have no time at all to revoke something: a failed write is retried after a pause.
_RESTORED_MIN_MS: Final = 100


class ConsumerMembership:
    def __init__(
        self,
        groups: GroupTable,
        settings: GroupSettings,
        updates: MemberUpdates,
        rebalance: Rebalance,
        new_uuid: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._updates = updates
        self._rebalance = rebalance
        self._new_uuid = new_uuid

    def heartbeat(self, caller: Caller, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> Decision:
        work = Work(Decision(), now_ms, visible_topics=caller.visible_topics)
        try:
            _validate(request, caller.version, self._settings.consumer_assignors)
            if request.member_epoch in _LEAVE_EPOCHS:
                response = self._leave(work, request)
            else:
                response = self._heartbeat(work, caller, request)
        except KafkaError as error:
            # No member was replaced or has left: the timers of the members that were to leave continue.
            work.decision.keep_timers()
            work.decision.reply(
                caller, ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
            )
            return work.decision
        work.decision.reply(caller, response)
        if work.records:
            self.append(work, request.group_id)
        return work.decision

    def append(self, work: Work, group_id: str) -> None:
        work.decision.append(work.records, partial(self._stored, group_id, work.undo))

    def _stored(self, group_id: str, undo: Undo | None, error: KafkaError | None, now_ms: int) -> Decision:
        decision = Decision()
        if error is not None:
            if undo is not None:
                undo(decision, error, now_ms)
            self.restore_timers(decision, group_id)
        return decision

    def _heartbeat(
        self, work: Work, caller: Caller, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        updates = self._updates
        is_joining = request.member_epoch == JOIN_EPOCH
        group = self._group_of(work, request.group_id, may_create=is_joining)
        updates.check_room(group, request.member_id)
        member_id = request.member_id or self._new_uuid()
        reported = _reported(request)
        before = self._member_before(work, group, member_id, request, reported)
        member = _changed(before, caller, request)
        has_other_names, regex_change = updates.subscribe(work, group, before, member)
        has_subscription_changed = has_other_names or regex_change is not RegexChange.NONE
        # An expression that is not resolved yet raises the epoch when it is.
        must_bump = has_other_names or regex_change is RegexChange.RESOLVED
        group_epoch = updates.refresh_metadata(work, group, before, member, must_bump=must_bump)
        target = updates.update_target(work, group, group_epoch, before, member)
        after = updates.reconcile(
            work, group, member, target, reported, has_subscription_changed=has_subscription_changed
        )
        work.decision.set_timer(
            session_timer_of(group.group_id, member_id), updates.session_timeout_ms(group.group_id)
        )
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=updates.heartbeat_interval_ms(group.group_id),
        )
        is_full = (
            request.rebalance_timeout_ms != _NOT_GIVEN
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if is_joining or is_full or _partitions(before.assigned) != _partitions(after.assigned):
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in after.assigned.items()
                ]
            )
        return response

    def _group_of(self, work: Work, group_id: str, *, may_create: bool) -> ConsumerGroup:
        group = self._groups.consumer.get(group_id)
        if group is not None:
            return group
        classic = self._groups.classic.get(group_id)
        if self._groups.is_other(group_id) or (classic is not None and not may_create):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        if not may_create:
            raise GroupIdNotFound(f"Consumer group {group_id} not found.")
        if classic is None:
            return ConsumerGroup(group_id)
        if classic.state is GroupState.EMPTY:
            work.records.append(group_tombstone(group_id))
            return ConsumerGroup(group_id)
        if not can_upgrade(classic, self._settings):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return self._upgrade(work, classic)

    def _upgrade(self, work: Work, classic: ClassicGroup) -> ConsumerGroup:
        """Timers of the classic group run on: they find no group, or the old one if this is not written."""
        group = upgraded(classic, self._groups.image)
        for member in classic.members.values():
            # A waiting member joins again, and finds the consumer group.
            answer_parked(work.decision, classic, member, RebalanceInProgress.code, member.member_id)
            work.decision.set_timer(session_timer(classic, member.member_id), member.session_timeout_ms)
        work.records.append(group_tombstone(classic.group_id))
        work.records += consumer_group_records(group)
        return group

    def _member_before(
        self,
        work: Work,
        group: ConsumerGroup,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        reported: Reported | None,
    ) -> ConsumerMember:
        is_joining = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id)
            if member is None and is_joining:
                return ConsumerMember(member_id=member_id)
            member = group.member(member_id)
            if not is_joining:
                _check_epoch(member, request.member_epoch, reported)
            return member
        if not is_joining:
            member = known_static(group, member_id, request.instance_id)
            _check_epoch(member, request.member_epoch, reported)
            return member
        existing = group.static_member(request.instance_id)
        if existing is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        if not existing.uses_classic_protocol and existing.member_epoch != LEAVE_STATIC_EPOCH:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {request.instance_id} cannot join the group because"
                f" the instance id is owned by {existing.member_id} member."
            )
        return self._updates.replace_static(work, group, existing, member_id)

    def _leave(self, work: Work, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        if not self._groups.has(request.group_id):
            raise GroupIdNotFound(f"Group {request.group_id} not found.")
        group = self._group_of(work, request.group_id, may_create=False)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = known_static(group, request.member_id, request.instance_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            # Its session ends if it does not come back; until then its partitions wait for it.
            away = replace(member, member_epoch=LEAVE_STATIC_EPOCH, pending_revocation={})
            work.records.append(current_record(group.group_id, away))
            work.decision.cancel_timer(revocation_timer(group.group_id, member.member_id))
        else:
            self.fence(work, group, [member], f"member {member.member_id} left")
        return response

    def fence(self, work: Work, group: ConsumerGroup, members: list[ConsumerMember], reason: str) -> None:
        """Takes members out of the group, which becomes a classic one if all that are left are classic."""
        if not can_downgrade(group, members, self._settings, is_replaced=False):
            self._updates.remove(work, group, members, reason)
            return
        for member in members:
            cancel_timers(work.decision, group.group_id, member.member_id)
        leaving_ids = {member.member_id for member in members}
        classic = self.downgrade(work, group, leaving_ids, None)
        self._rebalance.prepare(work.decision, classic, work.now_ms, DOWNGRADED)

    def downgrade(
        self, work: Work, group: ConsumerGroup, leaving_ids: set[str], joining: ConsumerMember | None
    ) -> ClassicGroup:
        """The group is a classic one from now on; if that is not written, it is again what it was."""
        renamed = {} if joining is None else dict.fromkeys(leaving_ids, joining.member_id)
        classic = downgraded(group, leaving_ids, joining, self._groups.image, work.now_ms)
        work.records += consumer_group_tombstones(group, renamed)
        record = classic.to_record({each.member_id: each.assignment for each in classic.members.values()})
        assert record.value is not None
        # The following rebalance elects a leader; if it is lost, the coordinator that loads the group sees this.
        record.value.leader = None
        work.records.append(record)
        self._groups.committed.keep(group.group_id, group)
        del self._groups.consumer[group.group_id]
        self._groups.classic[group.group_id] = classic
        work.decision.cancel_timer(join_timer(classic))
        work.decision.cancel_timer(sync_timer(classic))
        for member_id in group.members:
            cancel_timers(work.decision, group.group_id, member_id)
        for member in classic.members.values():
            work.decision.set_timer(session_timer(classic, member.member_id), member.session_timeout_ms)
        work.undo = partial(self._undo_downgrade, group, classic)
        return classic

    def _undo_downgrade(
        self, group: ConsumerGroup, classic: ClassicGroup, decision: Decision, error: KafkaError, now_ms: int
    ) -> None:
        if isinstance(error, RequestTimedOut):
            # The records are still in the log, and will be committed or lost with the leadership.
            return
        self._groups.committed.release(group.group_id)
        if self._groups.classic.get(group.group_id) is classic:
            bury(decision, classic, error_of_failed_append(error).code, now_ms)
            del self._groups.classic[group.group_id]
            self._groups.consumer[group.group_id] = group
            self._start_timers(decision.set_timer, group)

    def expire(self, key: TimerKey, now_ms: int) -> Decision:
        """A timer of a consumer group or of one of its members is due."""
        if key.kind is TimerKind.REGEX:
            return self._updates.resolve_some(key.group_id, now_ms)
        work = Work(Decision(), now_ms)
        group = self._groups.consumer.get(key.group_id)
        member = None if group is None else group.members.get(key.member_id)
        if group is None or member is None:
            return work.decision
        if key.kind is TimerKind.REVOCATION and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return work.decision
        late = "did not revoke its partitions in time"
        why = late if key.kind is TimerKind.REVOCATION else "session expired"
        self.fence(work, group, [member], f"member {member.member_id}: {why}")
        self.append(work, key.group_id)
        return work.decision

    def restore_timers(self, decision: Decision, group_id: str) -> None:
        """The decision could not be written: members that were to leave are still there, with a session each."""

        def restore(key: TimerKey, delay_ms: int) -> None:
            decision.set_timer_if_absent(key, max(delay_ms, _RESTORED_MIN_MS))

        group = self._groups.consumer.get(group_id)
        if group is not None:
            self._start_timers(restore, group)
        classic = self._groups.classic.get(group_id)
        if classic is not None:
            # It was to become a consumer group, in which a static member was to be replaced.
            for member in classic.members.values():
                key = session_timer(classic, member.member_id)
                decision.set_timer_if_absent(key, member.session_timeout_ms)

    def loaded(self, decision: Decision) -> None:
        for group in self._groups.consumer.values():
            self._start_timers(decision.set_timer, group)

    def _start_timers(self, set_timer: Callable[[TimerKey, int], None], group: ConsumerGroup) -> None:
        for member in group.members.values():
            key = session_timer_of(group.group_id, member.member_id)
            if member.classic is not None:
                set_timer(key, member.classic.session_timeout_ms)
                continue
            set_timer(key, self._updates.session_timeout_ms(group.group_id))
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                set_timer(revocation_timer(group.group_id, member.member_id), member.rebalance_timeout_ms)

    def unloaded(self, decision: Decision) -> None:
        for group in self._groups.consumer.values():
            decision.cancel_timer(TimerKey(TimerKind.REGEX, group.group_id))
            for member_id in group.members:
                cancel_timers(decision, group.group_id, member_id)
        self._groups.consumer.clear()
        self._updates.forget_resolutions()


def _validate(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    epoch = request.member_epoch
    needs_id = version >= _FIRST_WITH_MEMBER_ID or epoch > 0 or epoch == LEAVE_EPOCH
    for value, name in (
        (request.member_id if needs_id else None, "MemberId"),
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            raise InvalidRequest(f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == _NOT_GIVEN:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequest("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors:"
            f" {', '.join(assignors)}."
        )


def _reported(request: ConsumerGroupHeartbeatRequest) -> Reported | None:
    if request.topic_partitions is None:
        return None
    return {topic.topic_id: frozenset(topic.partitions) for topic in request.topic_partitions}


def _check_epoch(member: ConsumerMember, epoch: int, reported: Reported | None) -> None:
    if epoch == member.member_epoch:
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and _is_own(member, reported):
        return
    which = "greater" if epoch > member.member_epoch else "smaller"
    raise FencedMemberEpoch(
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.member_epoch}). The member must abandon all its partitions and rejoin."
    )


def _is_own(member: ConsumerMember, reported: Reported | None) -> bool:
    if reported is None:
        return False
    return all(
        topic_id in member.assigned and partitions <= member.assigned[topic_id].keys()
        for topic_id, partitions in reported.items()
    )


def _changed(
    before: ConsumerMember, caller: Caller, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember:
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        before,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == _NOT_GIVEN else timeout_ms,
        server_assignor=(
            before.server_assignor if request.server_assignor is None else request.server_assignor
        ),
        subscribed_topic_names=before.subscribed_topic_names if names is None else frozenset(names),
        subscribed_topic_regex=before.subscribed_topic_regex if regex is None else regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _partitions(owned: OwnedPartitions) -> dict[bytes, set[int]]:
    return {topic_id: set(partitions) for topic_id, partitions in owned.items()}
