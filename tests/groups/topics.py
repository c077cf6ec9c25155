"""Topics as a coordinator sees them, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import md5


@dataclass(frozen=True)
class Topic:
    id: bytes
    partitions: range


@dataclass(frozen=True)
class Image:
    topics: dict[str, Topic] = field(default_factory=dict)

    @property
    def topic_names(self) -> dict[bytes, str]:
        return {topic.id: name for name, topic in self.topics.items()}


def topic_id(name: str, incarnation: int = 0) -> bytes:
    """The same for the same name, until the topic is made anew."""
    return md5(f"{name} {incarnation}".encode(), usedforsecurity=False).digest()


def image_of(partition_counts: Mapping[str, int]) -> Image:
    return Image({name: Topic(topic_id(name), range(count)) for name, count in partition_counts.items()})
