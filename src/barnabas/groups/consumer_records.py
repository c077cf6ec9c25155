"""The records of consumer groups of the new protocol in `__consumer_offsets`, and their effect on a group.

    3  the group: its epoch                       6  the epoch of the target assignment
    4  its topics (only before 4.1)               7  a member's target
    5  a member and its subscription              8  a member's epoch, and its partitions
                                                 16  the topics that a regular expression matches

A group is removed in the order 8, 7, 6, 5, 16, 4, 3, a member in the order 8, 7, 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any, Final

from barnabas.errors import InvalidRecord
from barnabas.groups.consumer_group import (
    LEAVE_EPOCH,
    NO_EPOCH,
    Assignment,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    OwnedPartitions,
    ResolvedRegex,
)
from barnabas.groups.topics import TopicId
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from barnabas.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from barnabas.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from barnabas.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from barnabas.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from barnabas.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from barnabas.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from barnabas.protocol.messages.consumer_group_partition_metadata_value import (
    ConsumerGroupPartitionMetadataValue,
)
from barnabas.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from barnabas.protocol.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from barnabas.protocol.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from barnabas.protocol.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from barnabas.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from barnabas.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from barnabas.records.record import Record

_TYPE: Final = Struct(
    ">h"  # key: the type; value: version
)
assert _TYPE.size == 2
_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord:
    about: int
    key: Any
    value: Any

    @property
    def group_id(self) -> str:
        return str(self.key.group_id)

    def key_bytes(self) -> bytes:
        return _TYPE.pack(self.about) + encode(self.key, _VERSION)

    def value_bytes(self) -> bytes | None:
        return None if self.value is None else _TYPE.pack(_VERSION) + encode(self.value, _VERSION)


def member_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    classic = member.classic
    return ConsumerGroupRecord(
        5,
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
                ],
            ),
        ),
    )


def group_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        3,
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        7,
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        6,
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def current_record(group_id: str, member: ConsumerMember) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        8,
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=int(member.state),
            assigned_partitions=_topic_partitions(member.assigned),
            partitions_pending_revocation=_topic_partitions(member.pending_revocation),
        ),
    )


def _topic_partitions(owned: OwnedPartitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for topic_id, epochs in owned.items()
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        16,
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> ConsumerGroupRecord:
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return ConsumerGroupRecord(16, key, None)


def partition_metadata_tombstone(group_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(4, ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[ConsumerGroupRecord]:
    return [
        _current_tombstone(group_id, member_id),
        _target_tombstone(group_id, member_id),
        _member_tombstone(group_id, member_id),
    ]


def consumer_group_tombstones(
    group: ConsumerGroup, renamed: Mapping[str, str] | None = None
) -> list[ConsumerGroupRecord]:
    """All records of a group, with the current ids of its members."""
    group_id = group.group_id
    member_ids = [(renamed or {}).get(member_id, member_id) for member_id in group.members]
    return [
        *(_current_tombstone(group_id, member_id) for member_id in member_ids),
        *(_target_tombstone(group_id, member_id) for member_id in member_ids),
        ConsumerGroupRecord(6, ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(_member_tombstone(group_id, member_id) for member_id in member_ids),
        *(regex_tombstone(group_id, regex) for regex in group.resolved_regexes),
        partition_metadata_tombstone(group_id),
        ConsumerGroupRecord(3, ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _current_tombstone(group_id: str, member_id: str) -> ConsumerGroupRecord:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return ConsumerGroupRecord(8, key, None)


def _target_tombstone(group_id: str, member_id: str) -> ConsumerGroupRecord:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return ConsumerGroupRecord(7, key, None)


def _member_tombstone(group_id: str, member_id: str) -> ConsumerGroupRecord:
    return ConsumerGroupRecord(
        5, ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None
    )


def consumer_group_records(group: ConsumerGroup) -> list[ConsumerGroupRecord]:
    """All parts of a group."""
    group_id = group.group_id
    members = group.members.values()
    return [
        *(member_record(group_id, member) for member in members),
        group_record(group_id, group.group_epoch, group.metadata_hash),
        *(target_record(group_id, member.member_id, group.target_of(member)) for member in members),
        target_epoch_record(group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(current_record(group_id, member) for member in members),
    ]


def parse_consumer_record(about: int, record: Record) -> ConsumerGroupRecord:
    """Raises DecodeError or InvalidRecord if the bytes are not what their first two say."""
    kind = _KINDS[about]
    assert record.key is not None
    key = decode(kind.key, record.key, _VERSION, _TYPE.size)
    value = record.value
    if value is None:
        return ConsumerGroupRecord(about, key, None)
    if len(value) < _TYPE.size or _TYPE.unpack_from(value)[0] != _VERSION:
        raise InvalidRecord(f"the value of the group record at offset {record.offset} is not of version 0")
    return ConsumerGroupRecord(about, key, decode(kind.value, value, _VERSION, _TYPE.size))


def apply_record(group: ConsumerGroup, record: ConsumerGroupRecord) -> None:
    """Applies a record of the group; the table of groups handles the group's own tombstone."""
    _KINDS[record.about].apply(group, record.key, record.value)


def _apply_group(group: ConsumerGroup, key: Any, value: ConsumerGroupMetadataValue) -> None:
    group.group_epoch = value.epoch
    group.metadata_hash = value.metadata_hash


def _apply_partition_metadata(group: ConsumerGroup, key: Any, value: object) -> None:
    group.has_partition_metadata_record = value is not None


def _apply_member(
    group: ConsumerGroup,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.remove_member(key.member_id)
        return
    classic = value.classic_member_metadata
    member = group.members.get(key.member_id) or ConsumerMember(member_id=key.member_id)
    group.update_member(
        replace(
            member,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
            ),
        )
    )


def _apply_target_epoch(
    group: ConsumerGroup, key: Any, value: ConsumerGroupTargetAssignmentMetadataValue | None
) -> None:
    group.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def _apply_target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = {
            topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
        }


def _apply_current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is not None:
        group.update_member(
            replace(
                member or ConsumerMember(member_id=key.member_id),
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=MemberState(value.state),
                assigned=_owned(value.assigned_partitions, value.member_epoch),
                pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
            )
        )
    elif member is not None:
        group.update_member(
            replace(
                member,
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                assigned={},
                pending_revocation={},
            )
        )


def _owned(topics: Iterable[TopicPartitions], member_epoch: int) -> OwnedPartitions:
    """Before 4.3 the epochs of partitions were not kept: then they were got in the member's own."""
    owned: dict[TopicId, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def _apply_regex(
    group: ConsumerGroup,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> None:
    group.set_resolved_regex(
        key.regular_expression,
        None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp),
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    key: type[Message]
    value: type[Message]
    apply: Callable[[ConsumerGroup, Any, Any], None]


_KINDS: Final = {
    3: _Kind(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, _apply_group),
    4: _Kind(
        ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue, _apply_partition_metadata
    ),
    5: _Kind(ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, _apply_member),
    6: _Kind(
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
        _apply_target_epoch,
    ),
    7: _Kind(ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, _apply_target),
    8: _Kind(
        ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, _apply_current
    ),
    16: _Kind(ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, _apply_regex),
}
CONSUMER_GROUP_KEYS: Final = frozenset(_KINDS)
CONSUMER_GROUP_METADATA: Final = 3
CONSUMER_GROUP_REGEX: Final = 16
