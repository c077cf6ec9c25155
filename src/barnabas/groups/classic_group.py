"""A classic group: its members, its generation, and the requests that wait.

    Empty ──join──▶ PreparingRebalance ──all have joined──▶ CompletingRebalance ──assigned──▶ Stable
      ▲                │      ▲                                    │                              │
      └──all have left─┘      └──────── a member joins, leaves or changes its subscription ───────┘

Any state becomes Dead when the partition moves to another broker. The group only keeps the state; `membership` decides
what happens to it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from barnabas.errors import FencedInstanceId, InvalidRecord, UnknownMemberId
from barnabas.groups.caller import Caller
from barnabas.groups.records import GroupMetadataRecord
from barnabas.groups.states import GroupState
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from barnabas.protocol.messages.group_metadata_key import GroupMetadataKey
from barnabas.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from barnabas.protocol.messages.join_group_request import JoinGroupRequestProtocol

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
NO_STATE_TIMESTAMP: Final = -1
_SUBSCRIPTION_VERSION_BYTES: Final = 2
# With a UUID appended, the longest string of a message.
_ID_PREFIX_BYTES_MAX: Final = 2**15 - 1 - len("-00000000-0000-0000-0000-000000000000")


_CAN_FOLLOW: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class Member:
    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        # The protocols that it supports, with its metadata for each; its preferred one comes first.
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Caller | None = None
        self.awaiting_sync: Caller | None = None
        # The member does not know its id yet, so it cannot send heartbeats.
        self.is_new = False

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """A parked request is as good as a heartbeat, unless it is the very first one of the member."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def matches(self, protocols: dict[str, bytes]) -> bool:
        return list(self.protocols.items()) == list(protocols.items())


def member_id_of(prefix: str, uuid: str) -> str:
    """An id for a new member. It begins with the name of its client or instance, or with a part of it.

    Names may be as long as a string can be; a longer id could not be sent.
    """
    return f"{prefix.encode()[:_ID_PREFIX_BYTES_MAX].decode(errors='ignore')}-{uuid}"


def protocols_by_name(protocols: list[JoinGroupRequestProtocol]) -> dict[str, bytes]:
    """In the order of the request; of two with one name the first counts."""
    named: dict[str, bytes] = {}
    for protocol in protocols:
        named.setdefault(protocol.name, protocol.metadata)
    return named


class ClassicGroup:
    __slots__ = (
        "_awaiting_join_count",
        "_members_by_protocol",
        "generation_id",
        "group_id",
        "initial_delay_ms",
        "initial_remaining_ms",
        "is_leaderless",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join_members",
        "pending_sync_members",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_timestamp_ms = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        # No member knows that it is the leader: the group was stored before its first rebalance.
        self.is_leaderless = False
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        # Ids that have been given out and not yet been used to join. A dict, to keep an order.
        self.pending_join_members: dict[str, None] = {}
        self.pending_sync_members: dict[str, None] = {}
        # The first rebalance waits a while for more members, and a while longer if any have come.
        self.new_member_added = False
        self.initial_delay_ms = 0
        self.initial_remaining_ms = 0
        # None where the members' metadata does not say, for protocols other than the consumer's.
        self.subscribed_topics: frozenset[str] | None = None
        self._members_by_protocol: Counter[str] = Counter()
        self._awaiting_join_count = 0

    @classmethod
    def from_value(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        member_ids = {stored.member_id for stored in value.members}
        instance_ids = [stored.group_instance_id for stored in value.members if stored.group_instance_id]
        if len(member_ids) < len(value.members) or len(set(instance_ids)) < len(instance_ids):
            raise InvalidRecord(f"group {group_id} has the same member twice")
        group = cls(group_id, value.current_state_timestamp)
        for stored in value.members:
            group.add(
                Member(
                    member_id=stored.member_id,
                    group_instance_id=stored.group_instance_id,
                    client_id=stored.client_id,
                    client_host=stored.client_host,
                    rebalance_timeout_ms=(
                        stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout
                    ),
                    session_timeout_ms=stored.session_timeout,
                    protocols={value.protocol or "": stored.subscription},
                    assignment=stored.assignment,
                )
            )
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol if value.protocol or not group.members else ""
        if value.leader in group.members:
            group.leader_id = value.leader
        group.is_leaderless = value.leader is None and bool(group.members)
        group.subscribed_topics = group._subscribed_topics()
        return group

    def to_record(self, assignments: dict[str, bytes]) -> GroupMetadataRecord:
        """The group as it is stored once its members have these assignments."""
        protocol_name = self.protocol_name
        members = []
        for member in self.members.values():
            assert protocol_name is not None
            members.append(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.protocols[protocol_name],
                    assignment=assignments.get(member.member_id, b""),
                )
            )
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=members,
        )
        return GroupMetadataRecord(GroupMetadataKey(group=self.group_id), value)

    def to_empty_record(self) -> GroupMetadataRecord:
        """A group that has just been made, as it is stored before its first generation."""
        value = GroupMetadataValue(
            protocol=None, leader=None, current_state_timestamp=self.state_timestamp_ms
        )
        return GroupMetadataRecord(GroupMetadataKey(group=self.group_id), value)

    @property
    def can_rebalance(self) -> bool:
        return self.state in _CAN_FOLLOW[GroupState.PREPARING_REBALANCE]

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in _CAN_FOLLOW[state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def start_next_generation(self, now_ms: int) -> None:
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._subscribed_topics()
        self.transition_to(
            GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY,
            now_ms,
        )
        self.pending_sync_members.clear()

    def settle(self, generation_id: int) -> None:
        """Members were added to a group that was of another type: they continue in this generation."""
        self.generation_id = generation_id
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = self._subscribed_topics()
        self.previous_state = self.state = GroupState.STABLE

    def add(self, member: Member) -> None:
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._members_by_protocol.update(member.protocols.keys())
        self.pending_join_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """The member must not wait for anything any more: it would get no answer."""
        member = self.members.pop(member_id, None)
        if member is not None:
            assert member.awaiting_join is None
            assert member.awaiting_sync is None
            self._forget_protocols(member)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join_members.pop(member_id, None)
        self.pending_sync_members.pop(member_id, None)

    def update(
        self,
        member: Member,
        *,
        protocols: dict[str, bytes],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self._members_by_protocol.update(protocols.keys())
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def rename_static_member(self, member: Member, member_id: str) -> None:
        """A static member that comes back gets a new id, and keeps all else: its assignment, and the lead."""
        assert member.group_instance_id is not None
        old_member_id = member.member_id
        del self.members[old_member_id]
        member.member_id = member_id
        self.members[member_id] = member
        self.static_members[member.group_instance_id] = member_id
        if self.leader_id == old_member_id:
            self.leader_id = member_id
        if old_member_id in self.pending_sync_members:
            del self.pending_sync_members[old_member_id]
            self.pending_sync_members[member_id] = None

    def park_join(self, member: Member, caller: Caller) -> None:
        assert member.awaiting_join is None
        member.awaiting_join = caller
        self._awaiting_join_count += 1

    def unpark_join(self, member: Member) -> Caller | None:
        caller = member.awaiting_join
        if caller is not None:
            member.awaiting_join = None
            self._awaiting_join_count -= 1
        return caller

    @property
    def awaiting_join_count(self) -> int:
        return self._awaiting_join_count

    @property
    def has_all_members_joined(self) -> bool:
        return len(self.members) == self._awaiting_join_count and not self.pending_join_members

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Gives the lead to a member that has joined; False if none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def validate_member(self, member_id: str, group_instance_id: str | None) -> Member:
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                raise UnknownMemberId(f"no member of {self.group_id} is {group_instance_id}")
            if known != member_id:
                raise FencedInstanceId(f"{group_instance_id} of {self.group_id} is now another member")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"{member_id} is no member of {self.group_id}")
        return member

    def supports_protocols(self, protocol_type: str, names: dict[str, bytes]) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        member_count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._members_by_protocol[name] == member_count for name in names
        )

    def select_protocol(self) -> str:
        """The one that most members like best among those that all of them know."""
        member_count = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            known_to_all = (
                name for name in member.protocols if self._members_by_protocol[name] == member_count
            )
            votes[next(known_to_all)] += 1
        return votes.most_common(1)[0][0]

    def _forget_protocols(self, member: Member) -> None:
        self._members_by_protocol.subtract(member.protocols.keys())
        # Zeros would stay for each name that any client has ever thought of.
        self._members_by_protocol = +self._members_by_protocol

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            assert self.protocol_name is not None
            try:
                # All versions begin as version 0 does, so that no later one is a surprise.
                subscription, _ = decode_prefix(
                    ConsumerProtocolSubscription,
                    member.protocols[self.protocol_name],
                    0,
                    _SUBSCRIPTION_VERSION_BYTES,
                )
            except DecodeError:
                return None
            topics.update(subscription.topics)
        return frozenset(topics)
