"""The metadata and assignments of consumers with the classic protocol, which are otherwise opaque to the broker.

int16 version | the message in that version, or in the newest known one
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from barnabas.groups.topics import TopicId, Topics
from barnabas.protocol.codec import decode_prefix, encode
from barnabas.protocol.errors import DecodeError
from barnabas.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from barnabas.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_VERSION: Final = Struct(">h")
_NEWEST: Final = 3


class MalformedConsumerProtocol(Exception):
    """Bytes of a member that are not what consumers write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    version: int
    topics: list[str]
    owned: dict[str, list[int]]
    rack_id: str | None


def parse_subscription(data: bytes) -> Subscription:
    version = _version(data)
    try:
        found, _ = decode_prefix(ConsumerProtocolSubscription, data, version, _VERSION.size)
    except DecodeError as error:
        raise MalformedConsumerProtocol(str(error)) from error
    owned: dict[str, list[int]] = {}
    for each in found.owned_partitions:
        owned.setdefault(each.topic, []).extend(each.partitions)
    return Subscription(version=version, topics=found.topics, owned=owned, rack_id=found.rack_id)


def parse_assignment(data: bytes) -> dict[str, list[int]]:
    """Nothing at all is what a member has before its first assignment."""
    if not data:
        return {}
    try:
        found, _ = decode_prefix(ConsumerProtocolAssignment, data, _version(data), _VERSION.size)
    except DecodeError as error:
        raise MalformedConsumerProtocol(str(error)) from error
    assignment: dict[str, list[int]] = {}
    for each in found.assigned_partitions:
        assignment.setdefault(each.topic, []).extend(each.partitions)
    return assignment


def build_assignment(partitions: Mapping[str, list[int]], version: int) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=indexes) for topic, indexes in partitions.items()
        ],
        user_data=None,
    )
    return _VERSION.pack(version) + encode(message, version)


def by_topic_id(partitions: Mapping[str, Iterable[int]], image: Topics) -> dict[TopicId, frozenset[int]]:
    """Omits topics that do not exist."""
    topics = image.topics
    return {topics[name].id: frozenset(indexes) for name, indexes in partitions.items() if name in topics}


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise MalformedConsumerProtocol("there is no version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedConsumerProtocol(f"version {version}")
    return min(int(version), _NEWEST)
