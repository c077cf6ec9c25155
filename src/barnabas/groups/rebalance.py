"""A rebalance of a classic group, from the first change until all members have their assignment.

A waiting request is answered exactly once: when the phase ends, when the member leaves, or when a later request of the
same member replaces it.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.errors import KafkaError, RebalanceInProgress, UnknownMemberId
from barnabas.groups.caller import join_error
from barnabas.groups.classic_group import ClassicGroup, Member
from barnabas.groups.counts import GroupCounts
from barnabas.groups.settings import GroupSettings
from barnabas.groups.states import GroupState
from barnabas.groups.timers import TimerKey, TimerKind
from barnabas.primitives.decision import Decision, error_of_failed_append
from barnabas.protocol.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group_response import SyncGroupResponse

log = logging.getLogger(__name__)

# Members may say that a rebalance takes no time at all: the broker would look for a leader without a pause.
_LEADERLESS_WAIT_MIN_MS: Final = 100
# A log line has at most this much of it: a client may send 32 KB.
REASON_LENGTH_MAX: Final = 255
MEMBERS_SHOWN: Final = 5
DOWNGRADED: Final = "the consumer group has become a classic one"


def session_timer(group: ClassicGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def join_timer(group: ClassicGroup) -> TimerKey:
    return TimerKey(TimerKind.JOIN, group.group_id)


def sync_timer(group: ClassicGroup) -> TimerKey:
    return TimerKey(TimerKind.SYNC, group.group_id)


def join_response(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """The generation as a member sees it: the leader also gets all the other members."""
    members = []
    if group.leader_id == member.member_id:
        assert group.protocol_name is not None
        members = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                metadata=each.protocols[group.protocol_name],
            )
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=members,
    )


def sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def answer_parked(decision: Decision, group: ClassicGroup, member: Member, code: int, member_id: str) -> None:
    """The member's waiting request gets an error, with the id with which the member continues."""
    joining = group.unpark_join(member)
    if joining is not None:
        decision.reply(joining, join_error(joining, code, member_id))
    syncing = member.awaiting_sync
    if syncing is not None:
        member.awaiting_sync = None
        decision.reply(syncing, SyncGroupResponse(error_code=code))


def remove_member(decision: Decision, group: ClassicGroup, member: Member) -> None:
    # Its id is no good any more. If it is still there, it joins again without one.
    answer_parked(decision, group, member, UnknownMemberId.code, "")
    group.remove(member.member_id)
    decision.cancel_timer(session_timer(group, member.member_id))


def remove_pending_member(decision: Decision, group: ClassicGroup, member_id: str) -> None:
    group.remove(member_id)
    decision.cancel_timer(session_timer(group, member_id))


def bury(decision: Decision, group: ClassicGroup, code: int, now_ms: int) -> None:
    """Ends a group that its owner removes: all waiting requests get the error, and no timer remains."""
    for member in group.members.values():
        answer_parked(decision, group, member, code, member.member_id)
        decision.cancel_timer(session_timer(group, member.member_id))
    for member_id in group.pending_join_members:
        decision.cancel_timer(session_timer(group, member_id))
    decision.cancel_timer(join_timer(group))
    decision.cancel_timer(sync_timer(group))
    group.transition_to(GroupState.DEAD, now_ms)


def client_reason(reason: str | None) -> str:
    """A client's reason for joining or leaving, in the words of Kafka's log."""
    return f"client reason: {reason[:REASON_LENGTH_MAX] if reason else 'not provided'}"


def named(member_ids: list[str]) -> str:
    shown = ", ".join(member_ids[:MEMBERS_SHOWN])
    more = len(member_ids) - MEMBERS_SHOWN
    return f"{shown} and {more} more members" if more > 0 else shown


class Rebalance:
    __slots__ = ("_counts", "_settings")

    def __init__(self, settings: GroupSettings, counts: GroupCounts) -> None:
        self._settings = settings
        self._counts = counts

    def prepare_or_complete(self, decision: Decision, group: ClassicGroup, now_ms: int, reason: str) -> None:
        if group.can_rebalance:
            self.prepare(decision, group, now_ms, reason)
        else:
            self.complete_if_all_joined(decision, group, now_ms)

    def prepare(self, decision: Decision, group: ClassicGroup, now_ms: int, reason: str) -> None:
        """All members must join again; those without a waiting request learn this from their next heartbeat."""
        log.info(
            "Preparing to rebalance group %s in state %s with old generation %d (reason: %s).",
            group.group_id,
            group.state.value,
            group.generation_id,
            reason,
            extra={"group": group.group_id, "generation": group.generation_id, "reason": reason},
        )
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._refuse_assignment(decision, group, RebalanceInProgress.code)
        group.pending_sync_members.clear()
        decision.cancel_timer(sync_timer(group))
        is_initial = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        if is_initial:
            # The first member of a group is seldom its last: a wait here saves a rebalance for each of the others.
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            group.new_member_added = False
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            decision.set_timer(join_timer(group), delay_ms)
        elif group.has_all_members_joined:
            self._complete_join(decision, group, now_ms)
        else:
            decision.set_timer(join_timer(group), group.rebalance_timeout_ms)

    def complete_if_all_joined(self, decision: Decision, group: ClassicGroup, now_ms: int) -> None:
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.has_all_members_joined
        ):
            self._complete_join(decision, group, now_ms)

    def after_leave(
        self, decision: Decision, group: ClassicGroup, *, has_changed: bool, now_ms: int, reason: str
    ) -> None:
        """Members, or ids that were given out, have been taken out; `has_changed` if any was a member."""
        if has_changed or not group.can_rebalance:
            self.prepare_or_complete(decision, group, now_ms, reason)

    def join_expired(self, decision: Decision, group: ClassicGroup, now_ms: int) -> None:
        assert group.state is GroupState.PREPARING_REBALANCE
        if group.new_member_added and group.initial_remaining_ms > 0:
            group.new_member_added = False
            delay_ms = min(self._settings.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay_ms
            decision.set_timer(join_timer(group), delay_ms)
        else:
            self._complete_join(decision, group, now_ms)

    def _complete_join(self, decision: Decision, group: ClassicGroup, now_ms: int) -> None:
        decision.cancel_timer(join_timer(group))
        group.initial_remaining_ms = 0
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                remove_member(decision, group, member)
        if not group.elect_joined_leader() and group.members:
            # Static members alone are left, and none of them is here: until one comes or their sessions end.
            decision.set_timer(join_timer(group), max(group.rebalance_timeout_ms, _LEADERLESS_WAIT_MIN_MS))
            return
        group.start_next_generation(now_ms)
        self._counts.classic_rebalances += 1
        if not group.members:
            log.info("Group %s with generation %d is now empty.", group.group_id, group.generation_id)
            # If this is lost the members of the last generation come back when it is loaded, and time out.
            decision.append([group.to_record({})])
            return
        log.info(
            "Stabilized group %s generation %d with %d members.",
            group.group_id,
            group.generation_id,
            len(group.members),
            extra={
                "group": group.group_id,
                "generation": group.generation_id,
                "members": len(group.members),
            },
        )
        for member in group.members.values():
            joining = group.unpark_join(member)
            if joining is not None:
                decision.reply(joining, join_response(group, member))
            member.is_new = False
            group.pending_sync_members[member.member_id] = None
            decision.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)
        decision.set_timer(sync_timer(group), group.rebalance_timeout_ms)

    def sync_received(self, decision: Decision, group: ClassicGroup, member: Member) -> None:
        group.pending_sync_members.pop(member.member_id, None)
        if not group.pending_sync_members:
            decision.cancel_timer(sync_timer(group))

    def sync_expired(self, decision: Decision, group: ClassicGroup, now_ms: int) -> None:
        assert group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        late = list(group.pending_sync_members)
        for member_id in late:
            remove_member(decision, group, group.members[member_id])
        reason = f"removing {named(late)} on pending sync request expiration"
        self.prepare(decision, group, now_ms, reason)

    def assignment_stored(
        self,
        group: ClassicGroup,
        generation_id: int,
        assignments: dict[str, bytes],
        error: KafkaError | None,
        now_ms: int,
    ) -> Decision:
        decision = Decision()
        if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
            # The next rebalance has begun while this was written.
            return decision
        if error is not None:
            self._refuse_assignment(decision, group, error_of_failed_append(error).code)
            reason = f"error {error.name} when storing the group assignment"
            self.prepare(decision, group, now_ms, reason)
            return decision
        group.transition_to(GroupState.STABLE, now_ms)
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            self._answer_sync(decision, group, member, sync_response(group, member))
        return decision

    def _refuse_assignment(self, decision: Decision, group: ClassicGroup, code: int) -> None:
        for member in group.members.values():
            member.assignment = b""
            self._answer_sync(decision, group, member, SyncGroupResponse(error_code=code))

    def _answer_sync(
        self, decision: Decision, group: ClassicGroup, member: Member, response: SyncGroupResponse
    ) -> None:
        syncing = member.awaiting_sync
        if syncing is not None:
            member.awaiting_sync = None
            decision.reply(syncing, response)
            # While it waited its session could not expire, and the timer may be spent.
            decision.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)

    def session_expired(self, decision: Decision, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member_id in group.pending_join_members:
            remove_pending_member(decision, group, member_id)
        elif member is None or member.has_satisfied_heartbeat:
            return
        else:
            remove_member(decision, group, member)
            if group.can_rebalance:
                reason = f"removing member {member_id} on heartbeat expiration"
                self.prepare(decision, group, now_ms, reason)
                return
        if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            self._complete_join(decision, group, now_ms)
