"""Members join, agree on an assignment, stay alive and leave in a classic group.

JoinGroup waits until the members of the next generation are known; then the leader gets all of them and assigns.
SyncGroup waits until the leader's assignment is stored. Heartbeats, and waiting requests, keep a member's session
alive.

- From JoinGroup 4 a new member first gets an id (MEMBER_ID_REQUIRED), so that a client that gives up waiting leaves no
  member behind. From version 9 a leader that only came back skips the assignment.
- A static member that comes back replaces its former self, whose requests are fenced. In a stable group nothing else
  happens, unless this would change the protocol.
- A group with members of the new protocol belongs to that protocol: see `classic_members`. An empty one becomes a
  classic group when a member of the classic protocol joins.
- Cooperative rebalancing is up to the members: it is in metadata and assignments, which the broker does not read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.errors import (
    NONE,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMemberId,
    UnknownServerError,
)
from barnabas.groups.caller import Caller, join_error
from barnabas.groups.classic_group import ClassicGroup, Member, member_id_of, protocols_by_name
from barnabas.groups.classic_members import ClassicMembers
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.consumer_records import consumer_group_tombstones
from barnabas.groups.group_table import GroupTable
from barnabas.groups.rebalance import (
    Rebalance,
    answer_parked,
    bury,
    client_reason,
    join_response,
    named,
    remove_member,
    remove_pending_member,
    session_timer,
    sync_response,
)
from barnabas.groups.records import GroupRecord
from barnabas.groups.settings import GroupSettings
from barnabas.groups.states import GroupState
from barnabas.groups.timers import TimerKey, TimerKind
from barnabas.primitives.decision import Decision, error_of_failed_append
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.heartbeat_response import HeartbeatResponse
from barnabas.protocol.messages.join_group_request import JoinGroupRequest
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest
from barnabas.protocol.messages.sync_group_response import SyncGroupResponse

_FIRST_JOIN_WITH_REBALANCE_TIMEOUT = 1
_FIRST_JOIN_WITH_REQUIRED_ID = 4
_FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT = 9
_FIRST_LEAVE_OF_MANY = 3


class Membership:
    def __init__(
        self,
        groups: GroupTable,
        settings: GroupSettings,
        rebalance: Rebalance,
        consumer_groups: ClassicMembers,
        new_uuid: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._rebalance = rebalance
        self._consumer_groups = consumer_groups
        self._new_uuid = new_uuid

    def join(self, caller: Caller, request: JoinGroupRequest, now_ms: int) -> Decision:
        decision = Decision()
        try:
            self._join(decision, caller, request, now_ms)
        except GroupMaxSizeReached as full:
            decision.reply(caller, join_error(caller, full.code, "", ""))
        except (UnknownMemberId, FencedInstanceId) as unknown:
            decision.reply(caller, join_error(caller, unknown.code, request.member_id))
        except KafkaError as error:
            decision.reply(caller, join_error(caller, error.code, request.member_id, ""))
        return decision

    def _join(self, decision: Decision, caller: Caller, request: JoinGroupRequest, now_ms: int) -> None:
        settings = self._settings
        if not request.group_id:
            raise InvalidGroupId
        if not (
            settings.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.group_max_session_timeout_ms
        ):
            raise InvalidSessionTimeout(f"{request.session_timeout_ms} ms")
        if caller.version < _FIRST_JOIN_WITH_REBALANCE_TIMEOUT:
            request.rebalance_timeout_ms = request.session_timeout_ms
        if self._groups.is_other(request.group_id):
            raise InconsistentGroupProtocol(f"{request.group_id} is no classic group")
        consumer_group = self._groups.consumer.get(request.group_id)
        if consumer_group is not None and consumer_group.members:
            self._consumer_groups.join(decision, caller, request, consumer_group, now_ms)
            return
        group = self._groups.classic.get(request.group_id)
        is_new_group = group is None
        if group is None:
            if request.member_id:
                decision.reply(caller, join_error(caller, UnknownMemberId.code, request.member_id, ""))
                return
            group = ClassicGroup(request.group_id, now_ms)
        protocols = protocols_by_name(request.protocols)
        self._make_room(decision, group, request.member_id)
        if not group.supports_protocols(request.protocol_type, protocols):
            raise InconsistentGroupProtocol(f"{request.protocol_type} {list(protocols)}")
        self._groups.classic[request.group_id] = group
        if not request.member_id:
            self._join_new(decision, caller, request, protocols, group, now_ms)
        elif request.member_id in group.pending_join_members:
            if request.group_instance_id is not None:
                raise UnknownServerError(f"{request.member_id} was given to a member that was not static")
            self._add_member(decision, caller, request, protocols, group, request.member_id, now_ms)
        else:
            self._rejoin(decision, caller, request, protocols, group, now_ms)
        if is_new_group:
            records: list[GroupRecord] = [group.to_empty_record()]
            self._groups.committed.keep(request.group_id, consumer_group)
            if consumer_group is not None:
                del self._groups.consumer[request.group_id]
                records = [*consumer_group_tombstones(consumer_group), *records]
            decision.append(records, partial(self._group_stored, group, consumer_group))

    def _make_room(self, decision: Decision, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        max_size = self._settings.group_max_size
        if group.state is GroupState.PREPARING_REBALANCE:
            # Only waiting members count: the limit may have been lowered, and then the last ones to rejoin leave.
            is_welcome = (member is not None and member.awaiting_join is not None) or (
                group.awaiting_join_count < max_size
            )
        elif group.state is GroupState.EMPTY:
            is_welcome = True
        else:
            is_welcome = member is not None or len(group.members) < max_size
        if not is_welcome:
            if member is not None:
                remove_member(decision, group, member)
            elif member_id in group.pending_join_members:
                remove_pending_member(decision, group, member_id)
            raise GroupMaxSizeReached(f"{group.group_id} has {len(group.members)} members")

    def _group_stored(
        self,
        group: ClassicGroup,
        consumer_group: ConsumerGroup | None,
        error: KafkaError | None,
        now_ms: int,
    ) -> Decision:
        decision = Decision()
        if error is None or isinstance(error, RequestTimedOut):
            # After a time-out the record is still in the log, and will be committed or lost with the leadership.
            return decision
        if group.generation_id == 0 and self._groups.classic.get(group.group_id) is group:
            bury(decision, group, error_of_failed_append(error).code, now_ms)
            del self._groups.classic[group.group_id]
            if consumer_group is not None:
                self._groups.consumer[group.group_id] = consumer_group
        self._groups.committed.release(group.group_id)
        return decision

    def _join_new(
        self,
        decision: Decision,
        caller: Caller,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        group: ClassicGroup,
        now_ms: int,
    ) -> None:
        instance_id = request.group_instance_id
        prefix = caller.client_id if instance_id is None else instance_id
        member_id = member_id_of(prefix, self._new_uuid())
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(decision, caller, request, protocols, group, member_id, now_ms)
        elif instance_id is None and caller.version >= _FIRST_JOIN_WITH_REQUIRED_ID:
            group.pending_join_members[member_id] = None
            decision.set_timer(session_timer(group, member_id), request.session_timeout_ms)
            decision.reply(caller, join_error(caller, MemberIdRequired.code, member_id, ""))
        else:
            self._add_member(decision, caller, request, protocols, group, member_id, now_ms)

    def _add_member(
        self,
        decision: Decision,
        caller: Caller,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        group: ClassicGroup,
        member_id: str,
        now_ms: int,
    ) -> None:
        member = Member(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols,
        )
        member.is_new = True
        if not group.members:
            group.protocol_type = request.protocol_type
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member)
        group.park_join(member, caller)
        # The client cannot send heartbeats before it knows its id, and a parked connection does not show that its
        # client is gone. So the wait itself is bounded: a client that is still there will try again.
        decision.set_timer(session_timer(group, member_id), self._settings.new_member_join_timeout_ms)
        reason = (
            f"Adding new member {member_id} with group instance id {request.group_instance_id};"
            f" {client_reason(request.reason)}"
        )
        self._rebalance.prepare_or_complete(decision, group, now_ms, reason)

    def _rejoin(
        self,
        decision: Decision,
        caller: Caller,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        group: ClassicGroup,
        now_ms: int,
    ) -> None:
        member = group.validate_member(request.member_id, request.group_instance_id)
        is_leader = group.leader_id == member.member_id
        if group.state is GroupState.COMPLETING_REBALANCE:
            # With the same metadata it may just not have seen the answer to its last request.
            is_repeated = member.matches(protocols)
        elif group.state is GroupState.STABLE:
            # A leader that joins again wants a new assignment, for instance because a topic has grown.
            is_repeated = not is_leader and member.matches(protocols)
        else:
            assert group.state is GroupState.PREPARING_REBALANCE
            is_repeated = False
        if is_repeated:
            decision.reply(caller, join_response(group, member))
            return
        re_joins = is_leader and group.state is GroupState.STABLE
        what = (
            f"Leader {member.member_id} re-joining group"
            if re_joins
            else f"Updating metadata for member {member.member_id}"
        )
        reason = f"{what} during {group.state.value}; {client_reason(request.reason)}"
        self._update(decision, caller, request, protocols, group, member)
        self._rebalance.prepare_or_complete(decision, group, now_ms, reason)

    def _update(
        self,
        decision: Decision,
        caller: Caller,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        group: ClassicGroup,
        member: Member,
    ) -> None:
        # A member has one request under way: an earlier one that still waits is asked to come back.
        earlier = group.unpark_join(member)
        if earlier is not None:
            decision.reply(earlier, join_error(earlier, RebalanceInProgress.code, member.member_id))
        group.update(
            member,
            protocols=protocols,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
        )
        group.park_join(member, caller)

    def _replace_static(
        self,
        decision: Decision,
        caller: Caller,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        group: ClassicGroup,
        member_id: str,
        now_ms: int,
    ) -> None:
        instance_id = request.group_instance_id
        assert instance_id is not None
        member = group.members[group.static_members[instance_id]]
        leader_before = group.leader_id
        former = _Former(member)
        answer_parked(decision, group, member, FencedInstanceId.code, member.member_id)
        self._rename(decision, group, member, member_id)
        self._update(decision, caller, request, protocols, group, member)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            assignments = {each.member_id: each.assignment for each in group.members.values()}
            decision.append(
                [group.to_record(assignments)],
                partial(self._static_member_stored, group, member, caller, former, leader_before),
            )
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._rebalance.complete_if_all_joined(decision, group, now_ms)
        else:
            # The leader may know the former id already, and would assign to that.
            reason = (
                f"Updating metadata for static member {member_id} with instance id {instance_id};"
                f" {client_reason(request.reason)}"
            )
            self._rebalance.prepare(decision, group, now_ms, reason)

    def _rename(self, decision: Decision, group: ClassicGroup, member: Member, member_id: str) -> None:
        former_id = member.member_id
        group.rename_static_member(member, member_id)
        decision.cancel_timer(session_timer(group, former_id))
        decision.set_timer(session_timer(group, member_id), member.session_timeout_ms)

    def _static_member_stored(
        self,
        group: ClassicGroup,
        member: Member,
        caller: Caller,
        former: _Former,
        leader_before: str | None,
        error: KafkaError | None,
        now_ms: int,
    ) -> Decision:
        decision = Decision()
        if member.awaiting_join is not caller or group.state is not GroupState.STABLE:
            # A rebalance has started in the meantime, or has already answered it.
            return decision
        group.unpark_join(member)
        if error is not None:
            former.restore(group, member)
            self._rename(decision, group, member, former.member_id)
        # While it waited its session could not expire, and the timer may be spent.
        decision.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)
        response = join_response(group, member)
        if error is not None:
            response.error_code = error_of_failed_append(error).code
            response.member_id = ""
            response.members = []
        elif caller.version >= _FIRST_JOIN_WITH_SKIPPED_ASSIGNMENT:
            response.skip_assignment = group.leader_id == member.member_id
        else:
            # With its new id it would consider itself the leader, and assign again. It gets the former id.
            response.leader = leader_before or ""
            response.members = []
        decision.reply(caller, response)
        return decision

    def sync(self, caller: Caller, request: SyncGroupRequest, now_ms: int) -> Decision:
        decision = Decision()
        try:
            self._sync(decision, caller, request, now_ms)
        except KafkaError as error:
            decision.reply(caller, SyncGroupResponse(error_code=error.code))
        return decision

    def _sync(self, decision: Decision, caller: Caller, request: SyncGroupRequest, now_ms: int) -> None:
        consumer_group = self._groups.consumer.get(request.group_id)
        if consumer_group is not None:
            self._consumer_groups.sync(decision, caller, request, consumer_group)
            return
        group = self._group_of_member(request.group_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise IllegalGeneration(f"{request.generation_id}, not {group.generation_id}")
        if _differ(request.protocol_type, group.protocol_type) or _differ(
            request.protocol_name, group.protocol_name
        ):
            raise InconsistentGroupProtocol(f"{request.protocol_type} {request.protocol_name}")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress
        self._rebalance.sync_received(decision, group, member)
        if group.state is GroupState.STABLE:
            decision.reply(caller, sync_response(group, member))
            return
        assert group.state is GroupState.COMPLETING_REBALANCE
        if member.awaiting_sync is not None:
            decision.reply(member.awaiting_sync, SyncGroupResponse(error_code=RebalanceInProgress.code))
        member.awaiting_sync = caller
        if group.leader_id == member.member_id:
            assignments = {each.member_id: each.assignment for each in request.assignments}
            decision.append(
                [group.to_record(assignments)],
                partial(self._rebalance.assignment_stored, group, group.generation_id, assignments),
            )

    def heartbeat(self, caller: Caller, request: HeartbeatRequest, now_ms: int) -> Decision:
        decision = Decision()
        code = NONE
        consumer_group = self._groups.consumer.get(request.group_id)
        try:
            if consumer_group is not None:
                code = self._consumer_groups.heartbeat(decision, request, consumer_group)
            else:
                code = self._heartbeat(decision, request)
        except KafkaError as error:
            code = error.code
        decision.reply(caller, HeartbeatResponse(error_code=code))
        return decision

    def _heartbeat(self, decision: Decision, request: HeartbeatRequest) -> int:
        group = self._group_of_member(request.group_id)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise IllegalGeneration(f"{request.generation_id}, not {group.generation_id}")
        decision.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)
        return RebalanceInProgress.code if group.state is GroupState.PREPARING_REBALANCE else NONE

    def leave(self, caller: Caller, request: LeaveGroupRequest, now_ms: int) -> Decision:
        decision = Decision()
        has_many = caller.version >= _FIRST_LEAVE_OF_MANY
        members = request.members if has_many else [MemberIdentity(member_id=request.member_id)]
        consumer_group = self._groups.consumer.get(request.group_id)
        if consumer_group is not None:
            self._consumer_groups.leave(decision, caller, members, consumer_group, now_ms)
            return decision
        response = LeaveGroupResponse()
        if not request.group_id:
            response.error_code = InvalidGroupId.code
        else:
            group = self._groups.classic.get(request.group_id)
            has_changed = False
            gone: list[str] = []
            for identity in members:
                answer = MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id
                )
                response.members.append(answer)
                try:
                    has_changed |= self._leave(decision, group, identity)
                    gone.append(identity.member_id or f"instance {identity.group_instance_id}")
                except KafkaError as error:
                    answer.error_code = error.code
            if group is not None and any(answer.error_code == NONE for answer in response.members):
                reason = f"explicit LeaveGroup request for {named(gone)}; {client_reason(members[0].reason)}"
                self._rebalance.after_leave(
                    decision, group, has_changed=has_changed, now_ms=now_ms, reason=reason
                )
        if not has_many and response.members:
            response.error_code = response.members[0].error_code
            response.members = []
        decision.reply(caller, response)
        return decision

    def _leave(self, decision: Decision, group: ClassicGroup | None, identity: MemberIdentity) -> bool:
        """Whether it was a member, and not only a client that had got an id."""
        if group is None:
            raise UnknownMemberId
        if identity.member_id in group.pending_join_members:
            remove_pending_member(decision, group, identity.member_id)
            return False
        member_id = identity.member_id
        if not member_id:
            # An administrator knows a static member only by its instance id.
            member_id = group.static_members.get(identity.group_instance_id or "", "")
        member = group.validate_member(member_id, identity.group_instance_id)
        remove_member(decision, group, member)
        return True

    def expire(self, key: TimerKey, now_ms: int) -> Decision:
        decision = Decision()
        group = self._groups.classic.get(key.group_id)
        if group is None:
            return decision
        if group.state is GroupState.EMPTY and key.kind is not TimerKind.SESSION:
            # It is about a group of the same name, which has become a consumer group since and has gone.
            return decision
        if key.kind is TimerKind.JOIN:
            self._rebalance.join_expired(decision, group, now_ms)
        elif key.kind is TimerKind.SYNC:
            self._rebalance.sync_expired(decision, group, now_ms)
        else:
            assert key.kind is TimerKind.SESSION
            self._rebalance.session_expired(decision, group, key.member_id, now_ms)
        return decision

    def loaded(self, now_ms: int) -> Decision:
        """The partition has been replayed: members that were there have a session's time to be heard of."""
        decision = Decision()
        for group in self._groups.classic.values():
            for member in group.members.values():
                decision.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)
            if group.is_leaderless or len(group.members) > self._settings.group_max_size:
                reason = "no leader" if group.is_leaderless else "more members than group.max.size"
                self._rebalance.prepare(decision, group, now_ms, f"the loaded group has {reason}")
        return decision

    def unloaded(self, now_ms: int) -> Decision:
        """The partition belongs to another broker now: waiting requests get an error."""
        decision = Decision()
        for group in self._groups.classic.values():
            bury(decision, group, NotCoordinator.code, now_ms)
        self._groups.classic.clear()
        return decision

    def _group_of_member(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise InvalidGroupId
        group = self._groups.classic.get(group_id)
        if group is None:
            raise UnknownMemberId(f"there is no classic group {group_id}")
        return group


class _Former:
    """The state of a static member before it was replaced."""

    __slots__ = ("member_id", "protocols", "rebalance_timeout_ms", "session_timeout_ms")

    def __init__(self, member: Member) -> None:
        self.member_id = member.member_id
        self.protocols = member.protocols
        self.rebalance_timeout_ms = member.rebalance_timeout_ms
        self.session_timeout_ms = member.session_timeout_ms

    def restore(self, group: ClassicGroup, member: Member) -> None:
        group.update(
            member,
            protocols=self.protocols,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
        )


def _differ(asked: str | None, known: str | None) -> bool:
    return asked is not None and known is not None and asked != known
