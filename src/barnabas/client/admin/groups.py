"""Consumer groups of both kinds, their members and their committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.client.admin.core import AdminCore, by_topic, error_of, none_if_negative, outcome_of, raise_for
from barnabas.client.admin.results import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupType,
    MemberToRemove,
)
from barnabas.client.admin.topics import names_of
from barnabas.client.arguments import (
    as_enums,
    as_items,
    as_mapped,
    as_offset,
    as_text,
    as_texts,
    as_tp,
    as_tps,
)
from barnabas.client.subscription import OffsetAndMetadata
from barnabas.errors import (
    NONE,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    KafkaError,
    NotCoordinator,
    UnsupportedVersion,
)
from barnabas.model import TopicPartition
from barnabas.protocol.codec import decode_prefix
from barnabas.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_describe_response import Assignment
from barnabas.protocol.messages.consumer_group_describe_response import (
    DescribedGroup as DescribedConsumerGroup,
)
from barnabas.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from barnabas.protocol.messages.delete_groups_request import DeleteGroupsRequest
from barnabas.protocol.messages.describe_groups_request import DescribeGroupsRequest
from barnabas.protocol.messages.describe_groups_response import DescribedGroup
from barnabas.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.list_groups_request import ListGroupsRequest
from barnabas.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

# The last versions in which topics have names; behind them are ids, which a deleted topic does not have.
OFFSET_COMMIT_BY_NAME: Final = 9
OFFSET_FETCH_BY_NAME: Final = 9
CONSUMER_PROTOCOL: Final = "consumer"
_VERSION_BYTES: Final = 2
_ASSIGNMENT_VERSION_LAST: Final = 3
DEAD: Final = "Dead"
_NOT_NOW: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
REASON_LENGTH_MAX: Final = 255
REASON_OF_REMOVAL: Final = "member was removed by an admin"


class GroupsAdmin(AdminCore):
    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[GroupType | str] = (),
        timeout_ms: float | None = None,
    ) -> list[GroupListing]:
        """The groups of all brokers by name, of the states and types that are named or of all."""
        states_filter = as_texts(states, "states", "['Stable']")
        types_filter = [str(each) for each in as_enums(types, "types", GroupType)]

        async def ask(node: int) -> list[GroupListing]:
            request = ListGroupsRequest(states_filter=states_filter, types_filter=types_filter)
            answer = await self._request(node, request)
            raise_for(answer.error_code, None, f"groups of broker {node}")
            return [
                GroupListing(
                    group_id=each.group_id,
                    protocol_type=each.protocol_type,
                    state=each.group_state or None,
                    type=_group_type(each.group_type),
                )
                for each in answer.groups
            ]

        by_broker = await self._every_broker("listing groups", ask, timeout_ms)
        listed = {group.group_id: group for groups in by_broker.values() for group in groups}
        return [listed[group_id] for group_id in sorted(listed)]

    async def describe_groups(
        self, groups: str | Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, GroupDescription]:
        """State and members of classic and of consumer groups; GroupIdNotFound for one that does not exist."""

        async def ask(node: int | None, asked: list[str]) -> dict[str, GroupDescription | KafkaError]:
            assert node is not None
            found = await self._describe_consumer_groups(node, asked)
            others = [
                group for group in asked if isinstance(found.get(group), GroupIdNotFound | UnsupportedVersion)
            ]
            if others:
                found |= await self._describe_classic_groups(node, others)
            return found

        return await self._each(
            "describing groups",
            names_of(groups, "group"),
            self._at_group_coordinators,
            ask,
            timeout_ms,
            forget=self._forget_group_coordinator,
        )

    async def _describe_consumer_groups(
        self, node: int, groups: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        try:
            answer = await self._request(node, ConsumerGroupDescribeRequest(group_ids=groups))
        except UnsupportedVersion as error:
            return dict.fromkeys(groups, error)
        return {
            each.group_id: outcome_of(
                each.error_code, each.error_message, f"group {each.group_id}", _consumer_group(each, node)
            )
            for each in answer.groups
        }

    async def _describe_classic_groups(
        self, node: int, groups: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        answer = await self._request(node, DescribeGroupsRequest(groups=groups))
        found: dict[str, GroupDescription | KafkaError] = {}
        for each in answer.groups:
            if each.error_code == GroupIdNotFound.code or each.group_state == DEAD:
                # Brokers before 4.0 call a group dead that they do not know.
                found[each.group_id] = GroupIdNotFound(f"there is no group {each.group_id}")
            elif each.error_code != NONE:
                found[each.group_id] = error_of(each.error_code, each.error_message, f"group {each.group_id}")
            else:
                found[each.group_id] = _classic_group(each, node)
        return found

    async def delete_groups(self, groups: str | Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Deletes groups that have no members, with their offsets."""

        async def ask(node: int | None, asked: list[str]) -> dict[str, KafkaError | None]:
            answer = await self._request(node, DeleteGroupsRequest(groups_names=asked))
            return {
                each.group_id: outcome_of(each.error_code, None, f"group {each.group_id}", None)
                for each in answer.results
            }

        await self._each(
            "deleting groups",
            names_of(groups, "group"),
            self._at_group_coordinators,
            ask,
            timeout_ms,
            forget=self._forget_group_coordinator,
        )

    async def list_group_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's committed offsets, for the named partitions or all; omits partitions without one.

        With `require_stable` the call waits for offsets that an open transaction may still change.
        """
        as_text(group, "group")
        wanted = None if partitions is None else by_topic(as_tps(partitions))

        async def ask(node: int) -> dict[TopicPartition, CommittedOffset]:
            topics = None
            if wanted is not None:
                topics = [
                    OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                    for name, indexes in wanted.items()
                ]
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=require_stable
            )
            answer = await self._request(node, request, OFFSET_FETCH_BY_NAME)
            found = answer.groups[0]
            raise_for(found.error_code, None, f"group {group}")
            offsets = {}
            for topic in found.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    raise_for(each.error_code, None, partition)
                    if each.committed_offset >= 0:
                        offsets[partition] = CommittedOffset(
                            offset=each.committed_offset,
                            leader_epoch=none_if_negative(each.committed_leader_epoch),
                            metadata=each.metadata or "",
                        )
            return dict(sorted(offsets.items()))

        return await self._at_group_coordinator("listing offsets of a group", group, ask, timeout_ms)

    async def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | CommittedOffset],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commits offsets for a group that has no members; creates a missing group."""
        as_text(group, "group")
        wanted = as_mapped(offsets, "offsets", "{('orders', 0): 5}", as_tp, _offset)

        async def ask(node: int) -> dict[TopicPartition, KafkaError | None]:
            request = OffsetCommitRequest(
                group_id=group,
                topics=[
                    OffsetCommitRequestTopic(
                        name=name,
                        partitions=[_commit(index, wanted[TopicPartition(name, index)]) for index in indexes],
                    )
                    for name, indexes in by_topic(wanted).items()
                ],
            )
            answer = await self._request(node, request, OFFSET_COMMIT_BY_NAME)
            return self._group_outcomes(answer.topics)

        done = await self._at_group_coordinator("changing offsets of a group", group, ask, timeout_ms)
        self._results("changing offsets of a group", done)

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Forgets offsets of partitions that the group does not read any more."""
        as_text(group, "group")
        wanted = by_topic(as_tps(partitions))

        async def ask(node: int) -> dict[TopicPartition, KafkaError | None]:
            request = OffsetDeleteRequest(
                group_id=group,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=name,
                        partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
                    )
                    for name, indexes in wanted.items()
                ],
            )
            answer = await self._request(node, request)
            raise_for(answer.error_code, None, f"group {group}")
            return self._group_outcomes(answer.topics)

        done = await self._at_group_coordinator("deleting offsets of a group", group, ask, timeout_ms)
        self._results("deleting offsets of a group", done)

    def _group_outcomes(self, topics: Iterable[Any]) -> dict[TopicPartition, KafkaError | None]:
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        for topic in topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                outcomes[partition] = outcome = outcome_of(each.error_code, None, partition, None)
                # The coordinator answers for all partitions alike where it is not the right one or is still loading.
                if isinstance(outcome, _NOT_NOW):
                    raise outcome
        return outcomes

    async def remove_members(
        self,
        group: str,
        members: Iterable[str | MemberToRemove] | None = None,
        *,
        reason: str = REASON_OF_REMOVAL,
        timeout_ms: float | None = None,
    ) -> None:
        """Takes members out of a group, by instance id or as MemberToRemove; all of them if none is named."""
        as_text(group, "group")
        given_reason = as_text(reason, "reason")[:REASON_LENGTH_MAX]
        if members is None:
            described = (await self.describe_groups([group], timeout_ms=timeout_ms))[group]
            chosen = [MemberToRemove(each.member_id, each.instance_id) for each in described.members]
        else:
            chosen = _members(members)
        if not chosen:
            return

        async def ask(node: int) -> dict[MemberToRemove, KafkaError | None]:
            request = LeaveGroupRequest(
                group_id=group,
                members=[
                    MemberIdentity(
                        member_id=each.member_id, group_instance_id=each.instance_id, reason=given_reason
                    )
                    for each in chosen
                ],
            )
            answer = await self._request(node, request)
            raise_for(answer.error_code, None, f"group {group}")
            return {
                (member := MemberToRemove(each.member_id, each.group_instance_id)): outcome_of(
                    each.error_code, None, f"member {member.instance_id or member.member_id}", None
                )
                for each in answer.members
            }

        done = await self._at_group_coordinator("removing members", group, ask, timeout_ms)
        self._results("removing members", done)


def _offset(given: object, argument: str) -> CommittedOffset:
    """As `Consumer.commit` takes it, whose OffsetAndMetadata is as good."""
    if isinstance(given, OffsetAndMetadata):
        given = CommittedOffset(
            offset=given.offset, leader_epoch=none_if_negative(given.leader_epoch), metadata=given.metadata
        )
    committed = (
        given if isinstance(given, CommittedOffset) else CommittedOffset(offset=as_offset(given, argument))
    )
    as_offset(committed.offset, argument)
    as_text(committed.metadata, argument)
    return committed


def _members(given: object) -> list[MemberToRemove]:
    if isinstance(given, str | MemberToRemove):
        given = [given]
    return [
        each if isinstance(each, MemberToRemove) else MemberToRemove("", as_text(each, "members"))
        for each in as_items(given, "members", "['instance-1'], or MemberToRemove")
    ]


def _group_type(name: str) -> GroupType | None:
    if not name:
        return None
    known = name.lower()
    return GroupType(known) if known in frozenset(GroupType) else GroupType.UNKNOWN


def _consumer_group(group: DescribedConsumerGroup, node: int) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        type=GroupType.CONSUMER,
        state=group.group_state,
        protocol_type=CONSUMER_PROTOCOL,
        assignor=group.assignor_name,
        coordinator=node,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                host=each.client_host,
                assignment=_partitions(each.assignment),
                rack_id=each.rack_id,
                member_epoch=each.member_epoch,
                target_assignment=_partitions(each.target_assignment),
                subscribed_topics=tuple(each.subscribed_topic_names),
                subscribed_pattern=each.subscribed_topic_regex or None,
            )
            for each in group.members
        ),
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _classic_group(group: DescribedGroup, node: int) -> GroupDescription:
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL
    return GroupDescription(
        group_id=group.group_id,
        type=GroupType.CLASSIC,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=node,
        members=tuple(
            GroupMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                host=each.client_host,
                assignment=_classic_assignment(bytes(each.member_assignment)) if is_consumer else (),
            )
            for each in group.members
        ),
    )


def _classic_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The assignment of a member, as the leader of the group has written it for this member.

    A leader may write any bytes: those that do not decode are shown as no assignment.
    """
    if len(data) < _VERSION_BYTES:
        return ()
    version = min(int.from_bytes(data[:_VERSION_BYTES]), _ASSIGNMENT_VERSION_LAST)
    try:
        assignment, _ = decode_prefix(ConsumerProtocolAssignment, data, version, _VERSION_BYTES)
    except KafkaError:
        return ()
    return tuple(
        sorted(
            TopicPartition(topic.topic, index)
            for topic in assignment.assigned_partitions
            for index in topic.partitions
        )
    )


def _commit(index: int, committed: CommittedOffset) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
        committed_metadata=committed.metadata,
    )
