"""Messages between members of a classic group, which go through the coordinator unread.

    int16 version | ConsumerProtocolSubscription or ConsumerProtocolAssignment in that version

An unknown version is read as the last known one: later versions only add fields at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeVar

from barnabas.client.groups.assignors.base import Assignor, Member
from barnabas.errors import InconsistentGroupProtocol
from barnabas.model import TopicPartition
from barnabas.protocol.codec import decode_prefix, encode
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.message import Message
from barnabas.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from barnabas.protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from barnabas.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from barnabas.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic

PROTOCOL_TYPE: Final = "consumer"
LAST_VERSION: Final = 3

_VERSION: Final = Struct(">h")

M = TypeVar("M", bound=Message)


def encode_subscription(
    topics: Iterable[str],
    assignor: Assignor,
    owned: Iterable[TopicPartition],
    generation: int,
    rack_id: str | None,
) -> bytes:
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=assignor.user_data(),
        owned_partitions=[
            OwnedTopic(topic=topic, partitions=numbers) for topic, numbers in _by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack_id or None,
    )
    return _VERSION.pack(LAST_VERSION) + encode(subscription, LAST_VERSION)


def decode_member(member_id: str, group_instance_id: str | None, metadata: bytes) -> Member:
    subscription = _decode(
        ConsumerProtocolSubscription, metadata, f"the subscription of member {member_id!r}"
    )
    return Member(
        member_id=member_id,
        topics=frozenset(subscription.topics),
        group_instance_id=group_instance_id,
        owned=tuple(
            TopicPartition(owned.topic, number)
            for owned in subscription.owned_partitions
            for number in owned.partitions
        ),
        generation=subscription.generation_id,
        user_data=subscription.user_data,
        rack_id=subscription.rack_id or None,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in _by_topic(partitions).items()
        ]
    )
    return _VERSION.pack(LAST_VERSION) + encode(assignment, LAST_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions of a member. A leader may leave a member without an assignment: then it has none."""
    if not data:
        return []
    assignment = _decode(ConsumerProtocolAssignment, data, "the assignment by the group's leader")
    return [
        TopicPartition(assigned.topic, number)
        for assigned in assignment.assigned_partitions
        for number in assigned.partitions
    ]


def _decode(message_class: type[M], data: bytes, what: str) -> M:
    if len(data) < _VERSION.size:
        raise InconsistentGroupProtocol(f"{what} has no version in its {len(data)} bytes")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise InconsistentGroupProtocol(f"{what} has version {version}")
    try:
        return decode_prefix(message_class, data, min(version, LAST_VERSION), _VERSION.size)[0]
    except DecodeError as error:
        raise InconsistentGroupProtocol(f"{what} cannot be read: {error}") from None


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return by_topic
