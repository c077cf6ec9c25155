"""The cluster's topics as consumer groups see them: an immutable image, replaced by the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct
from typing import Final, Protocol

TopicId = bytes

_HASHED: Final = Struct(
    ">"
    "16s"  # topic id
    "i"  # number of partitions
    "i"  # bytes of the name, which follows
)
assert _HASHED.size == 24

_HASH: Final = Struct(">q")
NO_TOPICS_HASH: Final = 0


class Topic(Protocol):
    @property
    def id(self) -> TopicId: ...

    @property
    def partitions(self) -> Sized: ...


class Topics(Protocol):
    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def topic_names(self) -> Mapping[TopicId, str]: ...


@dataclass(frozen=True, slots=True)
class NoTopics:
    """Before the first image."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)


def ids_of(image: Topics, names: Iterable[str]) -> frozenset[TopicId]:
    """Those that exist."""
    topics = image.topics
    return frozenset(topics[name].id for name in names if name in topics)


def metadata_hash(image: Topics, names: Iterable[str]) -> int:
    """Changes when one of these topics is created, deleted or grows: then the group needs a new assignment.

    Kafka uses XXH3 for this hash. A coordinator that takes over a group compares it with its own hash, and at worst
    assigns once more than necessary.
    """
    topics = image.topics
    digest = blake2b(digest_size=_HASH.size)
    is_empty = True
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            is_empty = False
            encoded = name.encode()
            digest.update(_HASHED.pack(topic.id, len(topic.partitions), len(encoded)) + encoded)
    if is_empty:
        return NO_TOPICS_HASH
    return int(_HASH.unpack(digest.digest())[0])
