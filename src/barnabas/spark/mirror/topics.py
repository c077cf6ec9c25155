"""The topics of a mirror: made with the partitions and settings that they have at the source, and kept as wide."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import ConfigResource, ConfigSource, NewTopic, ResourceType
from barnabas.errors import TopicAlreadyExists, UnknownTopicOrPartition
from barnabas.model import TopicPartition

# Settings of a topic that apply to its own cluster only: leaders, throttles, and timestamps by the broker's clock.
OWN_SETTINGS: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)


class MirroredTopics:
    def __init__(
        self, source: Admin, target: Admin, *, target_topic: Callable[[str], str], replication_factor: int
    ) -> None:
        self._source = source
        self._target = target
        self._target_topic = target_topic
        self._replication_factor = replication_factor
        self._partition_counts: dict[str, int] = {}

    @property
    def partition_count(self) -> int:
        return sum(self._partition_counts.values())

    def make(self, partitions: Iterable[TopicPartition]) -> None:
        """Ensures that copies of all these topics exist; asks the clusters only about new ones."""
        needed: dict[str, int] = {}
        for topic, partition in partitions:
            if partition >= self._partition_counts.get(topic, 0):
                needed[topic] = max(needed.get(topic, 0), partition + 1)
        for topic in sorted(needed):
            # A topic that was deleted since the batch was planned has no more than the batch.
            count = max(self._count(self._source, topic), needed[topic])
            target = self._target_topic(topic)
            there = self._count(self._target, target)
            if there == 0:
                self.create(target, count, self._settings_of(topic))
            elif there < count:
                self._target.create_partitions({target: count})
            self._partition_counts[topic] = count

    def create(self, topic: str, partitions: int, settings: Mapping[str, str | None]) -> None:
        made = NewTopic(
            name=topic,
            partitions=partitions,
            replication_factor=self._replication_factor,
            configs=settings,
        )
        with contextlib.suppress(TopicAlreadyExists):
            self._target.create_topics([made])

    def _count(self, admin: Admin, topic: str) -> int:
        try:
            return len(admin.describe_topics(topic)[topic].partitions)
        except UnknownTopicOrPartition:
            return 0

    def _settings_of(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            entries = self._source.describe_configs(resource)[resource]
        except UnknownTopicOrPartition:
            return {}
        return {
            name: entry.value
            for name, entry in entries.items()
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and name not in OWN_SETTINGS
        }
