"""Members that speak the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

No member waits for another. JoinGroup brings the member a step closer to its target, SyncGroup returns its partitions,
and a heartbeat makes it join again as long as there is another step. The member's subscription contains the partitions
that it still owns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from barnabas.errors import (
    NONE,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
)
from barnabas.groups.caller import Caller, join_error
from barnabas.groups.classic_group import member_id_of, protocols_by_name
from barnabas.groups.consumer_group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    named_partitions,
)
from barnabas.groups.consumer_membership import ConsumerMembership
from barnabas.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedConsumerProtocol,
    Subscription,
    build_assignment,
    by_topic_id,
    parse_subscription,
)
from barnabas.groups.group_table import GroupTable
from barnabas.groups.member_updates import (
    MemberUpdates,
    RegexChange,
    Work,
    join_timer_of,
    known_static,
    session_timer_of,
    sync_timer_of,
)
from barnabas.groups.migration import can_downgrade
from barnabas.groups.rebalance import DOWNGRADED, Rebalance, named
from barnabas.groups.settings import GroupSettings
from barnabas.primitives.decision import Decision
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.join_group_request import JoinGroupRequest
from barnabas.protocol.messages.join_group_response import JoinGroupResponse
from barnabas.protocol.messages.leave_group_request import MemberIdentity
from barnabas.protocol.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from barnabas.protocol.messages.sync_group_request import SyncGroupRequest
from barnabas.protocol.messages.sync_group_response import SyncGroupResponse

_FIRST_JOIN_WITH_REQUIRED_ID: Final = 4
_FIRST_LEAVE_OF_MANY: Final = 3


class ClassicMembers:
    def __init__(
        self,
        groups: GroupTable,
        settings: GroupSettings,
        updates: MemberUpdates,
        consumers: ConsumerMembership,
        rebalance: Rebalance,
        new_uuid: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._updates = updates
        self._consumers = consumers
        self._rebalance = rebalance
        self._new_uuid = new_uuid

    def join(
        self, decision: Decision, caller: Caller, request: JoinGroupRequest, group: ConsumerGroup, now_ms: int
    ) -> None:
        """Raises the error for the client."""
        updates = self._updates
        work = Work(decision, now_ms)
        is_unknown = not request.member_id
        member_id = request.member_id or member_id_of(caller.client_id, self._new_uuid())
        updates.check_room(group, member_id)
        protocols = protocols_by_name(request.protocols)
        if not group.supports_classic_protocols(request.protocol_type, protocols):
            raise InconsistentGroupProtocol(f"Member {member_id}'s protocols are not supported.")
        instance_id = request.group_instance_id
        if is_unknown and instance_id is None and caller.version >= _FIRST_JOIN_WITH_REQUIRED_ID:
            decision.reply(caller, join_error(caller, MemberIdRequired.code, member_id))
            return
        existing = group.static_member(instance_id)
        is_downgrade = existing is not None and can_downgrade(
            group, [existing], self._settings, is_replaced=True
        )
        subscription = _subscription(protocols)
        before = self._member_before(work, group, member_id, instance_id, is_unknown=is_unknown)
        member = replace(
            before,
            instance_id=instance_id,
            rack_id=subscription.rack_id if subscription.rack_id is not None else before.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topic_names=frozenset(subscription.topics),
            subscribed_topic_regex="",
            client_id=caller.client_id,
            client_host=caller.client_host,
            classic=ClassicMetadata(request.session_timeout_ms, tuple(protocols.items())),
        )
        has_other_names, regex_change = updates.subscribe(work, group, before, member)
        has_changed = has_other_names or regex_change is not RegexChange.NONE
        group_epoch = updates.refresh_metadata(work, group, before, member, must_bump=has_changed)
        reported = by_topic_id(subscription.owned, self._groups.image)
        if not is_downgrade:
            target = updates.update_target(work, group, group_epoch, before, member)
            member = updates.reconcile(
                work, group, member, target, reported, has_subscription_changed=has_changed
            )
        if is_downgrade:
            assert existing is not None
            classic = self._consumers.downgrade(work, group, {existing.member_id}, member)
            # A classic group needs a leader that knows its role: otherwise no member would notice changes of topics.
            self._rebalance.prepare(decision, classic, now_ms, DOWNGRADED)
        else:
            _start_timers(decision, request, member.member_id)
        decision.reply(
            caller,
            JoinGroupResponse(
                generation_id=group.group_epoch if is_downgrade else member.member_epoch,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol_name=next(iter(protocols)),
                member_id=member.member_id,
            ),
        )
        if work.records:
            self._consumers.append(work, group.group_id)

    def _member_before(
        self, work: Work, group: ConsumerGroup, member_id: str, instance_id: str | None, *, is_unknown: bool
    ) -> ConsumerMember:
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        if not is_unknown:
            return known_static(group, member_id, instance_id)
        existing = group.static_member(instance_id)
        if existing is None:
            return ConsumerMember(member_id=member_id)
        return self._updates.replace_static(work, group, existing, member_id)

    def sync(
        self, decision: Decision, caller: Caller, request: SyncGroupRequest, group: ConsumerGroup
    ) -> None:
        member, classic = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            classic.protocol_name,
        ):
            raise InconsistentGroupProtocol(f"{request.protocol_type} {request.protocol_name}")
        if (
            group.assignment_epoch > member.member_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            self._await_join(decision, group, member)
            raise RebalanceInProgress(f"{member.member_id} is to join {group.group_id} again")
        decision.cancel_timer(sync_timer_of(group.group_id, member.member_id))
        decision.set_timer(session_timer_of(group.group_id, member.member_id), classic.session_timeout_ms)
        partitions = named_partitions(member.assigned, self._groups.image)
        decision.reply(
            caller,
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=build_assignment(partitions, _subscription(dict(classic.protocols)).version),
            ),
        )

    def heartbeat(self, decision: Decision, request: HeartbeatRequest, group: ConsumerGroup) -> int:
        """The error code for the member, which is sent to join again if there is something to be done for it."""
        member, classic = _classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        decision.set_timer(session_timer_of(group.group_id, member.member_id), classic.session_timeout_ms)
        is_free = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_unreleased(member)
        if (
            member.member_epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or is_free
        ):
            self._await_join(decision, group, member)
            return RebalanceInProgress.code
        return NONE

    def _await_join(self, decision: Decision, group: ConsumerGroup, member: ConsumerMember) -> None:
        decision.set_timer_if_absent(
            join_timer_of(group.group_id, member.member_id), member.rebalance_timeout_ms
        )

    def leave(
        self,
        decision: Decision,
        caller: Caller,
        members: list[MemberIdentity],
        group: ConsumerGroup,
        now_ms: int,
    ) -> None:
        response = LeaveGroupResponse()
        leaving: dict[str, ConsumerMember] = {}
        for identity in members:
            answer = MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id
            )
            response.members.append(answer)
            try:
                member = _leaving_member(group, identity)
                answer.member_id = member.member_id
                leaving[member.member_id] = member
            except KafkaError as error:
                answer.error_code = error.code
        if caller.version < _FIRST_LEAVE_OF_MANY:
            response = LeaveGroupResponse(error_code=response.members[0].error_code)
        if not leaving:
            decision.reply(caller, response)
            return
        work = Work(decision, now_ms)
        reason = f"explicit LeaveGroup request for {named(list(leaving))}"
        self._consumers.fence(work, group, list(leaving.values()), reason)
        decision.reply(caller, response)
        self._consumers.append(work, group.group_id)


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    instance_id = identity.group_instance_id
    if instance_id is None:
        member = group.member(identity.member_id)
    elif identity.member_id:
        member = known_static(group, identity.member_id, instance_id)
    else:
        # An administrator knows a static member only by its instance id.
        found = group.static_member(instance_id)
        if found is None:
            raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
        member = found
    _classic_metadata(member)
    return member


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        found = group.static_member(instance_id)
        if found is None:
            raise UnknownMemberId(f"no member of {group.group_id} is {instance_id}")
        if found.member_id != member_id:
            raise FencedInstanceId(f"{instance_id} of {group.group_id} is now another member")
        member = found
    return member, _classic_metadata(member)


def _classic_metadata(member: ConsumerMember) -> ClassicMetadata:
    if member.classic is None:
        raise UnknownMemberId(f"Member {member.member_id} does not use the classic protocol.")
    return member.classic


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if generation_id != member.member_epoch:
        raise IllegalGeneration(f"{generation_id}, not {member.member_epoch}")


def _subscription(protocols: dict[str, bytes]) -> Subscription:
    try:
        return parse_subscription(next(iter(protocols.values())))
    except MalformedConsumerProtocol as error:
        raise UnknownServerError(str(error)) from error


def _start_timers(decision: Decision, request: JoinGroupRequest, member_id: str) -> None:
    group_id = request.group_id
    decision.cancel_timer(join_timer_of(group_id, member_id))
    decision.set_timer(session_timer_of(group_id, member_id), request.session_timeout_ms)
    decision.set_timer(sync_timer_of(group_id, member_id), request.rebalance_timeout_ms)
