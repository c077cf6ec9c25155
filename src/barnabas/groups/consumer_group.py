"""A consumer group of the new protocol (KIP-848): its members, their targets and their current assignments.

Three epochs drive the group. The group epoch increases with every change of members, subscriptions or topics. The
target assignment is computed for a group epoch. A member's epoch is that of the target that it has reached, in steps:
it first revokes partitions, and it gets a new partition when no other member owns it any more.

    Empty ──join──▶ Assigning ──target computed──▶ Reconciling ──all members have it──▶ Stable

The state of the group is exactly its records: they are applied when they are appended, and when they are replayed.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from barnabas.errors import (
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)
from barnabas.groups.states import ConsumerGroupState
from barnabas.groups.topics import NO_TOPICS_HASH, TopicId, Topics

LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
JOIN_EPOCH: Final = 0
NO_EPOCH: Final = -1
_FIRST_COMMIT_WITH_MEMBER_EPOCH: Final = 9

OwnedPartitions: TypeAlias = Mapping[TopicId, Mapping[int, int]]
"""Partitions of each topic, with the epoch in which the member got them."""
Assignment: TypeAlias = Mapping[TopicId, frozenset[int]]

NOTHING_OWNED: Final[OwnedPartitions] = {}
NOTHING_ASSIGNED: Final[Assignment] = {}


class MemberState(enum.IntEnum):
    """Codes of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The state of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        return self.protocols[0][0]

    @property
    def subscription(self) -> bytes:
        return self.protocols[0][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    member_epoch: int = JOIN_EPOCH
    # The one before, which a member still has if it has not seen the last answer.
    previous_member_epoch: int = NO_EPOCH
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str = ""
    server_assignor: str | None = None
    assigned: OwnedPartitions = field(default_factory=dict)
    pending_revocation: OwnedPartitions = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def owned_partitions(self) -> Iterator[tuple[TopicId, int]]:
        """All partitions that no other member may own."""
        for held in (self.assigned, self.pending_revocation):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    yield topic_id, partition


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    # Of the topics that it was resolved with.
    version: int
    timestamp_ms: int


class ConsumerGroup:
    __slots__ = (
        "_owners",
        "_refreshed_epoch",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "classic_member_count",
        "classic_protocols",
        "group_epoch",
        "group_id",
        "has_partition_metadata_record",
        "members",
        "metadata_hash",
        "regex_subscribers",
        "resolved_regexes",
        "server_assignors",
        "static_members",
        "subscribed_topics",
        "target",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # No member gets the first epoch, as in Kafka: the first member joins in the second.
        self.group_epoch = 1
        self.metadata_hash = NO_TOPICS_HASH
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        # How many members subscribe by name, and how many regular expressions match.
        self.subscribed_topics: Counter[str] = Counter()
        self.regex_subscribers: Counter[str] = Counter()
        self.server_assignors: Counter[str] = Counter()
        self.classic_member_count = 0
        self.classic_protocols: Counter[str] = Counter()
        # Before 4.1 the topics were kept in a record, which goes when the group next changes.
        self.has_partition_metadata_record = False
        self._owners: dict[tuple[TopicId, int], str] = {}
        self._refreshed_epoch: int | None = None

    def copy(self) -> ConsumerGroup:
        """The group as it is now. Members never change, so that both may have them."""
        group = ConsumerGroup(self.group_id)
        group.group_epoch = self.group_epoch
        group.metadata_hash = self.metadata_hash
        group.assignment_epoch = self.assignment_epoch
        group.assignment_timestamp_ms = self.assignment_timestamp_ms
        group.members = self.members.copy()
        group.static_members = self.static_members.copy()
        group.target = self.target.copy()
        group.resolved_regexes = self.resolved_regexes.copy()
        group.subscribed_topics = self.subscribed_topics.copy()
        group.regex_subscribers = self.regex_subscribers.copy()
        group.server_assignors = self.server_assignors.copy()
        group.classic_member_count = self.classic_member_count
        group.classic_protocols = self.classic_protocols.copy()
        group.has_partition_metadata_record = self.has_partition_metadata_record
        group._owners = self._owners.copy()
        group._refreshed_epoch = self._refreshed_epoch
        return group

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        target_epoch = self.assignment_epoch
        if all(member.is_reconciled_to(target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def owner(self, topic_id: TopicId, partition: int) -> str | None:
        return self._owners.get((topic_id, partition))

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def update_member(self, member: ConsumerMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._forget(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.subscribed_topics.update(member.subscribed_topic_names)
        if member.subscribed_topic_regex:
            self.regex_subscribers[member.subscribed_topic_regex] += 1
        if member.server_assignor is not None:
            self.server_assignors[member.server_assignor] += 1
        if member.classic is not None:
            self.classic_member_count += 1
            self.classic_protocols.update(name for name, _ in member.classic.protocols)
        for partition in member.owned_partitions():
            self._owners[partition] = member.member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget(member)

    def _forget(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        subtract(self.subscribed_topics, member.subscribed_topic_names)
        if member.subscribed_topic_regex:
            subtract(self.regex_subscribers, (member.subscribed_topic_regex,))
        if member.server_assignor is not None:
            subtract(self.server_assignors, (member.server_assignor,))
        if member.classic is not None:
            self.classic_member_count -= 1
            subtract(self.classic_protocols, (name for name, _ in member.classic.protocols))
        for partition in member.owned_partitions():
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    def set_resolved_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        before = self.resolved_regexes.pop(regex, None)
        if before is not None:
            subtract(self.subscribed_topics, before.topics)
        if resolved is not None:
            self.resolved_regexes[regex] = resolved
            self.subscribed_topics.update(resolved.topics)

    def subscribed_names(self, member: ConsumerMember) -> frozenset[str]:
        """By name and by regular expression; one that is not resolved yet matches nothing."""
        resolved = self.resolved_regexes.get(member.subscribed_topic_regex)
        if resolved is None or not resolved.topics:
            return member.subscribed_topic_names
        if not member.subscribed_topic_names:
            return resolved.topics
        return member.subscribed_topic_names | resolved.topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def topics_after(
        self,
        *,
        removed: Iterable[ConsumerMember] = (),
        added: ConsumerMember | None = None,
        removed_regexes: Iterable[str] = (),
    ) -> Counter[str]:
        """The group's subscriptions if these members and regular expressions changed."""
        topics = self.subscribed_topics.copy()
        for member in removed:
            subtract(topics, member.subscribed_topic_names)
        for regex in removed_regexes:
            resolved = self.resolved_regexes.get(regex)
            if resolved is not None:
                subtract(topics, resolved.topics)
        if added is not None:
            topics.update(added.subscribed_topic_names)
        return topics

    def preferred_assignor(
        self, before: ConsumerMember | None = None, after: ConsumerMember | None = None
    ) -> str | None:
        """The one that most members ask for, with a member changed."""
        counts = self.server_assignors.copy()
        if before is not None and before.server_assignor is not None:
            subtract(counts, (before.server_assignor,))
        if after is not None and after.server_assignor is not None:
            counts[after.server_assignor] += 1
        return max(counts, key=lambda name: counts[name], default=None)

    def target_of(self, member: ConsumerMember) -> Assignment:
        """A static member that comes back under a new id is to own what it was to own before."""
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id, member_id)
        return self.target.get(member_id, NOTHING_ASSIGNED)

    @property
    def is_metadata_stale(self) -> bool:
        """Topics may have changed since the group last looked."""
        return self._refreshed_epoch is None or self.group_epoch < self._refreshed_epoch

    def metadata_refreshed(self, group_epoch: int) -> None:
        """Holds as soon as the group has reached the epoch; if its record is lost, it is stale again."""
        self._refreshed_epoch = group_epoch

    def request_metadata_refresh(self) -> None:
        self._refreshed_epoch = None

    def supports_classic_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        return protocol_type == "consumer" and any(
            self.classic_protocols[name] == self.classic_member_count for name in names
        )

    def all_use_classic_protocol_except(self, member_id: str) -> bool:
        return (
            self.classic_member_count == len(self.members) - 1
            and not self.member(member_id).uses_classic_protocol
        )

    def waits_for_unreleased(self, member: ConsumerMember) -> bool:
        """Whether another member still owns what the member is to get."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        for topic_id, partitions in self.target.get(member.member_id, NOTHING_ASSIGNED).items():
            assigned = member.assigned.get(topic_id, {})
            if any(
                partition not in assigned and self.owner(topic_id, partition) is not None
                for partition in partitions
            ):
                return True
        return False

    def validate_commit(
        self,
        member_id: str,
        instance_id: str | None,
        member_epoch: int,
        version: int,
        *,
        is_transactional: bool,
    ) -> CommitRule | None:
        """Raises if the commit comes from no member; returns the check for each partition, or None."""
        if member_epoch < 0 and not self.members:
            return None
        if is_transactional and member_epoch == NO_EPOCH and not member_id and instance_id is None:
            # Older transactional producers do not say for which member they commit.
            return None
        member = self.member(member_id)
        if (
            not is_transactional
            and not member.uses_classic_protocol
            and version < _FIRST_COMMIT_WITH_MEMBER_EPOCH
        ):
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by the consumer group protocol"
            )
        if member_epoch > member.member_epoch:
            raise stale_epoch(member, f"{member_epoch} is newer than the member's {member.member_epoch}")
        return None if member_epoch == member.member_epoch else CommitRule(member, member_epoch)

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            raise stale_epoch(member, f"{member_epoch}, not {member.member_epoch}")


class CommitRule(NamedTuple):
    """A member that does not know its latest epoch yet may commit for what it owned in the one it knows."""

    member: ConsumerMember
    member_epoch: int

    def error_code(self, topic_id: TopicId | None, partition: int) -> int:
        member = self.member
        epoch = None
        if topic_id is not None:
            epoch = member.assigned.get(topic_id, {}).get(partition)
            if epoch is None:
                epoch = member.pending_revocation.get(topic_id, {}).get(partition)
        if epoch is not None and self.member_epoch >= epoch:
            return 0
        return stale_epoch(member, "").code


def stale_epoch(member: ConsumerMember, why: str) -> IllegalGeneration | StaleMemberEpoch:
    """Each protocol has its own word for it."""
    return IllegalGeneration(why) if member.uses_classic_protocol else StaleMemberEpoch(why)


def subtract(counts: Counter[str], names: Iterable[str]) -> None:
    """Zeros would stay for each name that any client has ever thought of."""
    for name in names:
        left = counts[name] - 1
        if left > 0:
            counts[name] = left
        else:
            del counts[name]


def named_partitions(assignment: Mapping[TopicId, Iterable[int]], image: Topics) -> dict[str, list[int]]:
    """By topic name, in order; omits deleted topics."""
    names = image.topic_names
    return {
        names[topic_id]: sorted(partitions)
        for topic_id, partitions in assignment.items()
        if topic_id in names and partitions
    }
