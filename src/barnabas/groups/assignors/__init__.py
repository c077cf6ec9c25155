"""Server-side assignors: they decide which partitions each member of a group owns.

An assignor gets the subscription and the previous target of each member, and returns the new target. It keeps no state,
and does not change its input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from barnabas.groups.topics import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    topic_ids: frozenset[TopicId]
    instance_id: str | None = None
    target: Mapping[TopicId, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    # Of every topic that any member subscribes to.
    partition_counts: Mapping[TopicId, int]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        subscriptions = iter(self.members.values())
        first = next(subscriptions).topic_ids
        return all(member.topic_ids == first for member in subscriptions)


GroupAssignment: TypeAlias = dict[str, dict[TopicId, frozenset[int]]]
Assignor: TypeAlias = Callable[[GroupSpec], GroupAssignment]
NO_OWNER: Final = -1
