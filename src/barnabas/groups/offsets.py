"""Committing, fetching, deleting and expiring the offsets of groups.

- A commit with generation -1 comes from a client that is not a member: it is accepted while the group is empty, and
  creates a group without a protocol if there is none. From OffsetCommit 9 an unknown group is GROUP_ID_NOT_FOUND,
  before that ILLEGAL_GENERATION.
- Offsets of an empty group expire `offsets.retention.minutes` after the last member left, or after their own commit if
  that was later; those of a group with members only if no member subscribes to the topic any more.
- Topics are known by name here, and may not exist. An offset that was committed with a topic id is not returned for
  another topic with the same name.
"""

from __future__ import annotations

from typing import Final

from barnabas.errors import (
    NONE,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    KafkaError,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from barnabas.groups.caller import Caller
from barnabas.groups.classic_group import NO_STATE_TIMESTAMP, ClassicGroup
from barnabas.groups.consumer_group import CommitRule, ConsumerGroup
from barnabas.groups.counts import GroupCounts
from barnabas.groups.group_table import GroupTable
from barnabas.groups.offset_store import OffsetStore, StoredOffset
from barnabas.groups.rebalance import session_timer
from barnabas.groups.records import NO_EXPIRY, GroupRecord, OffsetCommitRecord, offset_tombstone
from barnabas.groups.settings import GroupSettings
from barnabas.groups.states import GroupState
from barnabas.model import NO_TIMESTAMP, ProducerEpoch, ProducerId, TopicPartition
from barnabas.primitives.decision import Decision, Producer
from barnabas.protocol.message import ZERO_UUID, Uuid
from barnabas.protocol.messages.offset_commit_key import OffsetCommitKey
from barnabas.protocol.messages.offset_commit_request import OffsetCommitRequest
from barnabas.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_commit_value import OffsetCommitValue
from barnabas.protocol.messages.offset_delete_request import OffsetDeleteRequest
from barnabas.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.protocol.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from barnabas.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_FIRST_COMMIT_WITH_UNKNOWN_GROUP: Final = 9
_BROKER_DECIDES: Final = -1


class Offsets:
    def __init__(
        self, groups: GroupTable, store: OffsetStore, settings: GroupSettings, counts: GroupCounts
    ) -> None:
        self._groups = groups
        self._store = store
        self._settings = settings
        self._counts = counts

    def commit(self, caller: Caller, request: OffsetCommitRequest, now_ms: int) -> Decision:
        decision = Decision()
        try:
            group = self._group_to_commit_to(request.group_id, request.generation_id_or_member_epoch)
            rule = _validate_commit(
                group,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                caller.version,
                is_transactional=False,
            )
        except GroupIdNotFound as unknown:
            is_known_error = caller.version >= _FIRST_COMMIT_WITH_UNKNOWN_GROUP
            decision.reply(
                caller, commit_error(request, unknown.code if is_known_error else IllegalGeneration.code)
            )
            return decision
        except KafkaError as error:
            decision.reply(caller, commit_error(request, error.code))
            return decision
        if isinstance(group, ClassicGroup) and group.state in (
            GroupState.STABLE,
            GroupState.PREPARING_REBALANCE,
        ):
            member = group.members[request.member_id]
            decision.set_timer(session_timer(group, member.member_id), member.session_timeout_ms)
        expire_timestamp = NO_EXPIRY
        if request.retention_time_ms != _BROKER_DECIDES:
            expire_timestamp = now_ms + request.retention_time_ms
        response = OffsetCommitResponse()
        records: list[GroupRecord] = []
        for topic in request.topics:
            answers = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(answers)
            for asked in topic.partitions:
                answer = OffsetCommitResponsePartition(partition_index=asked.partition_index)
                answers.partitions.append(answer)
                if rule is not None:
                    answer.error_code = self._broken_rule(rule, topic.name, asked.partition_index)
                    if answer.error_code != NONE:
                        continue
                if self._is_too_large(asked.committed_metadata):
                    answer.error_code = OffsetMetadataTooLarge.code
                    continue
                value = OffsetCommitValue(
                    offset=asked.committed_offset,
                    leader_epoch=asked.committed_leader_epoch,
                    metadata=asked.committed_metadata or "",
                    commit_timestamp=(
                        now_ms if asked.commit_timestamp == NO_TIMESTAMP else asked.commit_timestamp
                    ),
                    expire_timestamp=expire_timestamp,
                    topic_id=topic.topic_id,
                )
                records.append(_commit_record(request.group_id, topic.name, asked.partition_index, value))
        self._counts.offset_commits += len(records)
        decision.append(records)
        decision.reply(caller, response)
        return decision

    def commit_in_transaction(
        self, caller: Caller, request: TxnOffsetCommitRequest, now_ms: int, *, verification_guard: int = 0
    ) -> Decision:
        """Whether the producer may is for the log to say, which checks its epoch and the guard."""
        decision = Decision()
        try:
            if not request.group_id:
                raise InvalidGroupId
            group = self._group_to_commit_to(request.group_id, request.generation_id)
            rule = _validate_commit(
                group,
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                caller.version,
                is_transactional=True,
            )
        except (GroupIdNotFound, StaleMemberEpoch):
            # Producers know the word of classic groups alone.
            decision.reply(caller, txn_commit_error(request, IllegalGeneration.code))
            return decision
        except KafkaError as error:
            decision.reply(caller, txn_commit_error(request, error.code))
            return decision
        response = TxnOffsetCommitResponse()
        records: list[GroupRecord] = []
        for topic in request.topics:
            answers = TxnOffsetCommitResponseTopic(name=topic.name)
            response.topics.append(answers)
            for asked in topic.partitions:
                answer = TxnOffsetCommitResponsePartition(partition_index=asked.partition_index)
                answers.partitions.append(answer)
                if self._is_too_large(asked.committed_metadata):
                    answer.error_code = OffsetMetadataTooLarge.code
                    continue
                if rule is not None and self._broken_rule(rule, topic.name, asked.partition_index) != NONE:
                    decision.reply(caller, txn_commit_error(request, IllegalGeneration.code))
                    return decision
                value = OffsetCommitValue(
                    offset=asked.committed_offset,
                    leader_epoch=asked.committed_leader_epoch,
                    metadata=asked.committed_metadata or "",
                    commit_timestamp=now_ms,
                )
                records.append(_commit_record(request.group_id, topic.name, asked.partition_index, value))
        self._counts.offset_commits += len(records)
        decision.append(records)
        decision.reply(caller, response)
        decision.producer = Producer(
            producer_id=ProducerId(request.producer_id),
            producer_epoch=ProducerEpoch(request.producer_epoch),
            verification_guard=verification_guard,
        )
        return decision

    def _group_to_commit_to(self, group_id: str, generation_id: int) -> ClassicGroup | ConsumerGroup | None:
        """None if the commit is to make the group."""
        if self._groups.is_other(group_id):
            raise UnknownMemberId(f"{group_id} is of a protocol that is not spoken here")
        group = self._groups.classic.get(group_id) or self._groups.consumer.get(group_id)
        if group is None and generation_id >= 0:
            raise GroupIdNotFound(group_id)
        return group

    def _broken_rule(self, rule: CommitRule, topic: str, partition: int) -> int:
        found = self._groups.image.topics.get(topic)
        return rule.error_code(None if found is None else found.id, partition)

    def _is_too_large(self, metadata: str | None) -> bool:
        limit = self._settings.offset_metadata_max_bytes
        if metadata is None or 2 * len(metadata) <= limit:
            return False
        if metadata.isascii() or len(metadata) > limit:
            return len(metadata) > limit
        # Kafka counts as Java does, where characters beyond the basic plane are two.
        return len(metadata.encode("utf-16-le", "surrogatepass")) > 2 * limit

    def fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """The committed offsets, for all partitions if none are named; -1 if there is none.

        Raises for a member that is not in the group, or not in this epoch.
        """
        group = self._groups.committed.find(request.group_id)
        if isinstance(group, ConsumerGroup):
            group.validate_fetch(request.member_id, request.member_epoch)
        response = OffsetFetchResponseGroup(group_id=request.group_id)
        committed = self._store.committed(request.group_id)
        topics = request.topics
        if topics is None:
            topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in self.committed_partitions(request.group_id).items()
            ]
        may_be_unstable = require_stable and self._store.may_change(request.group_id)
        for asked in topics:
            answers = OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id)
            response.topics.append(answers)
            for index in asked.partition_indexes:
                answer = OffsetFetchResponsePartitions(
                    partition_index=index, committed_offset=-1, committed_leader_epoch=-1
                )
                answers.partitions.append(answer)
                where = TopicPartition(asked.name, index)
                stored = committed.get(where)
                if may_be_unstable and self._store.is_unstable(request.group_id, where):
                    answer.error_code = UnstableOffsetCommit.code
                elif stored is not None and not _is_of_another_topic(stored.value.topic_id, asked.topic_id):
                    answer.committed_offset = stored.value.offset
                    answer.committed_leader_epoch = stored.value.leader_epoch
                    answer.metadata = stored.value.metadata
        return response

    def delete(self, caller: Caller, request: OffsetDeleteRequest) -> Decision:
        decision = Decision()
        try:
            if not request.group_id:
                raise InvalidGroupId
            if self._groups.is_other(request.group_id):
                raise NonEmptyGroup(request.group_id)
            group = self._groups.classic.get(request.group_id) or self._groups.consumer.get(request.group_id)
            if group is None:
                raise GroupIdNotFound(request.group_id)
            if (
                isinstance(group, ClassicGroup)
                and group.state is not GroupState.EMPTY
                and not group.uses_consumer_protocol
            ):
                # Only the members understand the metadata with their topics.
                raise NonEmptyGroup(request.group_id)
        except KafkaError as error:
            decision.reply(caller, OffsetDeleteResponse(error_code=error.code))
            return decision
        response = OffsetDeleteResponse()
        records: list[GroupRecord] = []
        known = set(self._store.partitions(group.group_id))
        for topic in request.topics:
            code = GroupSubscribedToTopic.code if group.is_subscribed_to(topic.name) else NONE
            response.topics.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=asked.partition_index, error_code=code)
                        for asked in topic.partitions
                    ],
                )
            )
            if code == NONE:
                records.extend(
                    offset_tombstone(group.group_id, topic.name, asked.partition_index)
                    for asked in topic.partitions
                    if TopicPartition(topic.name, asked.partition_index) in known
                )
        self._counts.offset_deletions += len(records)
        decision.append(records)
        decision.reply(caller, response)
        return decision

    def delete_partitions(self, deleted: set[TopicPartition]) -> Decision:
        """Partitions are gone, and so is what any group has committed for them."""
        decision = Decision()
        decision.is_atomic = False
        decision.append(
            [
                offset_tombstone(group_id, partition.topic, partition.partition)
                for group_id in self._store.group_ids()
                for partition in self._store.partitions(group_id)
                if partition in deleted
            ]
        )
        return decision

    def count(self, group_id: str) -> int:
        """How many partitions the group has committed offsets for."""
        return len(self._store.committed(group_id))

    def committed_partitions(self, group_id: str) -> dict[str, list[int]]:
        """By topic."""
        partitions: dict[str, list[int]] = {}
        for topic, partition in self._store.committed(group_id):
            partitions.setdefault(topic, []).append(partition)
        return partitions

    def tombstones(self, group_id: str) -> list[GroupRecord]:
        return [
            offset_tombstone(group_id, topic, partition)
            for topic, partition in self._store.partitions(group_id)
        ]

    def expired(self, group: ClassicGroup | ConsumerGroup, now_ms: int) -> list[TopicPartition]:
        return [
            partition
            for partition, stored in self._store.committed(group.group_id).items()
            if self._is_expired(group, partition, stored, now_ms)
        ]

    def _is_expired(
        self,
        group: ClassicGroup | ConsumerGroup,
        partition: TopicPartition,
        stored: StoredOffset,
        now_ms: int,
    ) -> bool:
        since_ms = stored.value.commit_timestamp
        if isinstance(group, ConsumerGroup):
            if group.is_subscribed_to(partition.topic):
                return False
        elif group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                if group.state_timestamp_ms != NO_STATE_TIMESTAMP:
                    since_ms = max(since_ms, group.state_timestamp_ms)
            elif (
                group.state is not GroupState.STABLE
                or group.subscribed_topics is None
                or partition.topic in group.subscribed_topics
            ):
                return False
        if stored.value.expire_timestamp != NO_EXPIRY:
            is_due = now_ms >= stored.value.expire_timestamp
        else:
            is_due = now_ms - since_ms >= self._settings.offsets_retention_ms
        return is_due and not self._store.is_unstable(group.group_id, partition)


def _is_of_another_topic(topic_id: Uuid, asked_id: Uuid) -> bool:
    """Whether an offset belongs to an earlier topic of the same name, as far as both ids are known."""
    return topic_id != asked_id and topic_id != ZERO_UUID and asked_id != ZERO_UUID


def _validate_commit(
    group: ClassicGroup | ConsumerGroup | None,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
    version: int,
    *,
    is_transactional: bool,
) -> CommitRule | None:
    """Raises if the whole commit is refused; else what each partition has to stand, if anything."""
    if isinstance(group, ConsumerGroup):
        return group.validate_commit(
            member_id, group_instance_id, generation_id, version, is_transactional=is_transactional
        )
    if group is None or (generation_id < 0 and group.state is GroupState.EMPTY):
        return None
    if generation_id >= 0 or member_id or group_instance_id is not None:
        group.validate_member(member_id, group_instance_id)
        if generation_id != group.generation_id:
            raise IllegalGeneration(f"{generation_id}, not {group.generation_id}")
    elif not is_transactional:
        raise UnknownMemberId(f"{group.group_id} has members, and this is from none of them")
    # Older transactional producers do not say for which member they commit, so the state does not matter to them.
    if not is_transactional and group.state is GroupState.COMPLETING_REBALANCE:
        raise RebalanceInProgress
    return None


def _commit_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> OffsetCommitRecord:
    return OffsetCommitRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value)


def commit_error(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def txn_commit_error(request: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
