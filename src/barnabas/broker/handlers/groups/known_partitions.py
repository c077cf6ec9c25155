"""Offsets are kept for partitions that exist, and of topics that the client may read.

Others are refused one by one, before the coordinator is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Protocol, TypeVar

from barnabas.coordination.metadata.image import MetadataImage
from barnabas.errors import TopicAuthorizationFailed


class TopicWithPartitions(Protocol):
    """A topic of a request or a response. Each of its partitions has a `partition_index`."""

    name: str
    partitions: list[Any]


AskedT = TypeVar("AskedT", bound=TopicWithPartitions)
RefusedT = TypeVar("RefusedT", bound=TopicWithPartitions)


def take_known(
    image: MetadataImage, topics: list[AskedT], refuse: Callable[[AskedT, list[int]], RefusedT]
) -> tuple[list[AskedT], list[RefusedT]]:
    """The topics with the partitions that exist, and the answers of `refuse` for the other partitions of a topic."""
    known: list[AskedT] = []
    refused: list[RefusedT] = []
    for topic in topics:
        found = image.topics.get(topic.name)
        count = 0 if found is None else len(found.partitions)
        unknown = [each.partition_index for each in topic.partitions if not 0 <= each.partition_index < count]
        if unknown:
            refused.append(refuse(topic, unknown))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions or not unknown:
            known.append(topic)
    return known, refused


def take_permitted(
    permission: Container[str], topics: list[AskedT], refuse: Callable[[AskedT, list[int], int], RefusedT]
) -> tuple[list[AskedT], list[RefusedT]]:
    """The topics that the client may use, and the answers of `refuse` for the others. Topics without a name stay."""
    permitted: list[AskedT] = []
    refused: list[RefusedT] = []
    for topic in topics:
        if not topic.name or topic.name in permission:
            permitted.append(topic)
        else:
            indexes = [each.partition_index for each in topic.partitions]
            refused.append(refuse(topic, indexes, TopicAuthorizationFailed.code))
    return permitted, refused


def add_refused(topics: list[RefusedT], refused: list[RefusedT]) -> None:
    """Adds to the topics of a response: each topic once, with its refused partitions behind the others."""
    by_name = {topic.name: topic for topic in topics}
    for topic in refused:
        # A topic that was given by an unknown id has no name.
        answered = by_name.get(topic.name) if topic.name else None
        if answered is None:
            topics.append(topic)
        else:
            answered.partitions += topic.partitions
