"""Topics of partition directories that the store knows nothing of, as when data was brought from another cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.log_config import DELETION_HOLD
from barnabas.coordination.metadata.identity import random_id
from barnabas.coordination.metadata.image import MetadataImage, PartitionImage, TopicImage, Uuid
from barnabas.coordination.metadata.topic_names import is_legal_topic_name
from barnabas.coordination.planning.topic_creation import (
    PARTITIONS_MAX,
    PlannedTopic,
    automatic_topic,
    new_partition,
)
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from barnabas.value import replace

log = logging.getLogger(__name__)


class FoundPartition(NamedTuple):
    """The data in the directory of a partition: the topic's id, if it was written, and the log's last leader epoch."""

    topic_id: Uuid | None
    leader_epoch: LeaderEpoch


def plan_adoption(
    image: MetadataImage,
    broker_id: BrokerId,
    config: BrokerConfig,
    found: Mapping[TopicPartition, FoundPartition],
    rng: Random,
    replicas: Mapping[TopicPartition, Sequence[BrokerId]] = MappingProxyType({}),
) -> list[PlannedTopic]:
    """Topics for directories that no topic of the image claims; skips contradictory directories.

    The settings are lost, except the mandatory ones of internal topics: nothing is deleted from such a topic until the
    user has confirmed them (barnabas.deletion.hold). Leader epochs continue from those of the logs. `replicas` says who
    has the directories, the leader first, if it is not this broker.
    """
    by_topic: dict[str, dict[int, FoundPartition]] = {}
    for at, partition in sorted(found.items()):
        if at.topic not in image.topics:
            by_topic.setdefault(at.topic, {})[at.partition] = partition
    planned = []
    for name, partitions in by_topic.items():
        ids = {each.topic_id for each in partitions.values() if each.topic_id is not None}
        count = max(partitions) + 1
        problem = _problem(image, name, ids, count)
        if problem:
            log.error("the directories of topic %r are left alone: %s", name, problem)
            continue
        topic = TopicImage(
            name=name,
            id=ids.pop() if ids else random_id(rng),
            partitions=tuple(
                _partition(
                    replicas.get(TopicPartition(name, index), (broker_id,)),
                    _epoch_after(partitions.get(index)),
                )
                for index in range(count)
            ),
        )
        automatic = automatic_topic(name, config, broker_count=1).configs
        configs = {key: text for key, text in automatic.items() if text is not None} | {DELETION_HOLD: "true"}
        planned.append(PlannedTopic(topic=topic, configs=configs))
    return planned


def _partition(replicas: Sequence[BrokerId], leader_epoch: LeaderEpoch) -> PartitionImage:
    """Only the leader is known to have what it has."""
    return replace(new_partition(replicas, leader_epoch=leader_epoch), isr=(replicas[0],))


def _problem(image: MetadataImage, name: str, ids: set[Uuid], count: int) -> str:
    if not is_legal_topic_name(name):
        return "no topic can have this name"
    if len(ids) > 1:
        return "they have different topic ids"
    if count > PARTITIONS_MAX:
        return f"there is one for partition {count - 1}"
    owner = next((image.topic_names[each] for each in ids if each in image.topic_names), None)
    return "" if owner is None else f"topic {owner!r} has the id that is in them"


def _epoch_after(partition: FoundPartition | None) -> LeaderEpoch:
    return LeaderEpoch(0 if partition is None else partition.leader_epoch + 1)
