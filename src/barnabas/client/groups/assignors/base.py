"""Shared parts of the assignors: members with their subscriptions, and the order in which they are served."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from barnabas.model import TopicPartition

NO_GENERATION: Final = -1

Assignments = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id."""


PartitionRacks = Mapping[TopicPartition, frozenset[str]]
"""The racks that have a replica of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a group as its leader sees it.

    `owned` and `generation` are the member's previous partitions and the generation in which it had them.
    """

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes | None = None
    rack_id: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members come first, by an id that a restart does not change: they get the same partitions again."""
        if self.group_instance_id is not None:
            return False, self.group_instance_id
        return True, self.member_id


class Assignor(ABC):
    name: ClassVar[str]
    cooperative: ClassVar[bool] = False

    @abstractmethod
    def assign(
        self,
        partition_counts: Mapping[str, int],
        members: Sequence[Member],
        racks: PartitionRacks | None = None,
    ) -> Assignments:
        """The partitions of every member; topics that do not exist are not among the counts.

        `racks` are given if members have racks. Only roundrobin does not use them.
        """

    def user_data(self) -> bytes | None:
        """The user data of a member, which goes to the leader with its subscription."""
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Informs a member's assignor of the assignment of its member; for assignors with state."""
        return
