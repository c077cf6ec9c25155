"""The state of a consumer: its subscription, its assigned partitions, and their positions.

Two threads use a partition: the loop fetches, the caller returns records. Each field has one writer, named below, so no
lock is needed. An event that makes all pending data useless (a seek, a reset, a partition that was revoked and assigned
again) replaces the whole `PartitionState`: code that holds the old one sees that it is no longer the assigned one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from barnabas.client.partition_state import PartitionState
from barnabas.errors import InvalidRequest, InvalidTopicException, OffsetOutOfRange
from barnabas.model import TopicPartition

C = TypeVar("C")

TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class ConsumerError(InvalidRequest):
    """A call that is not possible in the current state: the message names the alternative."""


class ConsumerWakeup(ConsumerError):
    """Another thread or task has called wakeup(), to end a poll or a wait for the next record."""


class NoOffsetForPartition(OffsetOutOfRange):
    """A partition has no committed offset, and auto.offset.reset=none leaves it to the caller where to begin."""


class LogTruncation(OffsetOutOfRange):
    """Records that were read are not in the leader's log any more, which parts from ours at `divergent_offset`."""

    divergent_offset: int = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset: that of the next record to be read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first record at a time or later."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadata:
    """The identity of this member in its group: a transactional producer needs it to commit offsets for it."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class Subscription:
    """The subscription, in one of three ways that exclude each other, and the assigned partitions."""

    __slots__ = ("_is_manual", "partitions", "pattern", "topics", "version")

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | str | None = None
        # Replaced as a whole when partitions come or go; a seek replaces a value.
        self.partitions: dict[TopicPartition, PartitionState] = {}
        # Increases with every change of the subscription, so that the group's member sees it.
        self.version = 0
        self._is_manual = False

    @property
    def is_subscribed(self) -> bool:
        return self.pattern is not None or bool(self.topics)

    @property
    def is_manual(self) -> bool:
        return self._is_manual

    def subscribe(self, topics: Iterable[str]) -> None:
        self._refuse_if(self._is_manual, "assign")
        self._refuse_if(self.pattern is not None, "subscribe with a pattern")
        names = [topics] if isinstance(topics, str) else list(topics)
        for name in names:
            check_topic(name)
        self.topics = frozenset(names)
        self.version += 1

    def subscribe_pattern(self, pattern: re.Pattern[str] | str) -> None:
        """A compiled pattern is matched here, a text by the server (group.protocol=consumer alone)."""
        self._refuse_if(self._is_manual, "assign")
        self._refuse_if(bool(self.topics) and self.pattern is None, "subscribe with names")
        self.pattern = pattern
        self.version += 1

    def match_topics(self, names: Iterable[str]) -> bool:
        """Subscribes to those topics that the pattern matches; whether that changed anything."""
        assert isinstance(self.pattern, re.Pattern)
        matched = frozenset(name for name in names if self.pattern.match(name))
        if matched == self.topics:
            return False
        self.topics = matched
        return True

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assigns partitions manually: those that stay assigned keep their position."""
        self._refuse_if(self.is_subscribed, "subscribe")
        wanted = [as_partition(each) for each in as_list(partitions, "partitions, such as [('orders', 0)]")]
        self._is_manual = bool(wanted)
        self.set_partitions(wanted)

    def unsubscribe(self) -> None:
        self.topics = frozenset()
        self.pattern = None
        self.partitions = {}
        self.version += 1
        self._is_manual = False

    def set_partitions(
        self, partitions: Iterable[TopicPartition], *, is_awaiting_callback: bool = False
    ) -> None:
        before = self.partitions
        self.partitions = {
            each: before.get(each) or PartitionState(each, is_awaiting_callback=is_awaiting_callback)
            for each in partitions
        }

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self.partitions = {each: state for each, state in self.partitions.items() if each not in gone}

    def replace(self, state: PartitionState) -> None:
        assert state.partition in self.partitions
        self.partitions[state.partition] = state

    def is_current(self, state: PartitionState) -> bool:
        return self.partitions.get(state.partition) is state

    def state_of(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition; ConsumerError if it is not."""
        state = self.partitions.get(as_partition(partition))
        if state is None:
            raise ConsumerError(
                f"{TopicPartition(*partition)} is not assigned to this consumer: assign it, or wait until the group has"
            )
        return state

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all partitions: a commit without offsets commits these."""
        return {
            partition: OffsetAndMetadata(state.position, leader_epoch=state.epoch)
            for partition, state in self.partitions.items()
            if state.position is not None
        }

    def _refuse_if(self, is_other_way: bool, way: str) -> None:
        if is_other_way:
            raise ConsumerError(
                f"this consumer already uses {way}: names, patterns and assigned partitions exclude each other;"
                " call unsubscribe() first"
            )


def as_list(given: Iterable[C], what: str) -> list[C]:
    """The elements that people give; ConsumerError if this is no list at all."""
    # A caller without type checks may have passed anything.
    if not isinstance(given, Iterable):
        raise ConsumerError(f"{given!r} is no list: give {what}")
    return list(given)


def as_partition(given: object) -> TopicPartition:
    """A partition as people give it: a TopicPartition or any pair of topic and number."""
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and isinstance(number, int) and number >= 0:
            check_topic(topic)
            return TopicPartition(topic, number)
    raise ConsumerError(f"{given!r} is no partition: give TopicPartition('topic', 0) or ('topic', 0)")


def as_offsets(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit as people give them."""
    # A caller without type checks may have passed anything.
    if not isinstance(offsets, Mapping):
        raise ConsumerError(f"{offsets!r} is no mapping of partitions to offsets: give {{('orders', 0): 5}}")
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, given in offsets.items():
        offset = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        if type(offset.offset) is not int or offset.offset < 0:
            raise ConsumerError(f"{given!r} is no offset to commit for {partition}: it must be 0 or more")
        if not isinstance(offset.metadata, str):
            raise ConsumerError(f"the metadata of {given!r} for {partition} is no text")
        found[as_partition(partition)] = offset
    return found


def check_topic(name: object) -> None:
    # A caller without type checks may have passed anything.
    if not isinstance(name, str) or TOPIC_NAME.fullmatch(name) is None or name in (".", ".."):
        raise InvalidTopicException(
            f"{name!r} cannot be the name of a topic: text of 1 to 249 letters, digits, dots, underscores or hyphens"
        )
