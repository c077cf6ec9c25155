"""The groups of one partition of `__consumer_offsets`, and the topics that they can read."""

from __future__ import annotations

from barnabas.groups.classic_group import ClassicGroup
from barnabas.groups.committed import CommittedGroups
from barnabas.groups.consumer_group import ConsumerGroup
from barnabas.groups.topics import NoTopics, Topics


class GroupTable:
    """A group is of one type at a time."""

    __slots__ = ("classic", "committed", "consumer", "image", "other", "topics_version")

    def __init__(self) -> None:
        self.classic: dict[str, ClassicGroup] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self.committed = CommittedGroups(self.classic, self.consumer)
        # Groups of other protocols, with the name of their type. They are known so that they are not changed.
        self.other: dict[str, str] = {}
        self.image: Topics = NoTopics()
        # Rises when there are new topics, which regular expressions may match.
        self.topics_version = 1

    def is_other(self, group_id: str) -> bool:
        return group_id in self.other

    def has(self, group_id: str) -> bool:
        return group_id in self.consumer or group_id in self.classic or group_id in self.other
