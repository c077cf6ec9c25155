"""The health of a cluster: its brokers, and the replicas and leaders of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import PartitionDescription, TopicDescription
from barnabas.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHealth:
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    is_fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerHealth, ...]


def cluster_health(admin: Admin) -> ClusterHealth:
    described = admin.describe_cluster()
    return ClusterHealth(
        cluster_id=described.cluster_id,
        controller_id=described.controller_id,
        brokers=tuple(
            BrokerHealth(
                broker_id=node.id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                is_controller=node.id == described.controller_id,
                is_fenced=node.id in described.fenced,
            )
            for node in described.nodes
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """`min_isr` is the topic's min.insync.replicas, None if it was not asked for."""

    topic: str
    described: PartitionDescription
    min_isr: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.described.partition)

    @property
    def is_unavailable(self) -> bool:
        """Whether the partition has no leader."""
        return self.described.leader is None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.described.isr) < len(self.described.replicas)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether producers with acks=all are refused."""
        return self.min_isr is not None and len(self.described.isr) < self._effective_min_isr

    @property
    def is_at_min_isr(self) -> bool:
        """Whether the loss of one more replica makes producers with acks=all fail.

        A partition with a single replica has no replica to lose, so it does not count.
        """
        is_replicated = len(self.described.replicas) > 1
        return (
            self.min_isr is not None and is_replicated and len(self.described.isr) == self._effective_min_isr
        )

    @property
    def _effective_min_isr(self) -> int:
        assert self.min_isr is not None
        return min(self.min_isr, len(self.described.replicas))

    @property
    def preferred_leader(self) -> int | None:
        """The first replica of the assignment."""
        return self.described.replicas[0] if self.described.replicas else None

    @property
    def has_other_leader(self) -> bool:
        """Whether the partition is not led by its preferred leader."""
        return self.preferred_leader is not None and self.described.leader != self.preferred_leader


def partition_health(
    topics: Iterable[TopicDescription], min_isr: Mapping[str, int] | None = None
) -> list[PartitionHealth]:
    """`min_isr` is the min.insync.replicas of topics, where it is known."""
    known = min_isr or {}
    return [
        PartitionHealth(topic=topic.name, described=each, min_isr=known.get(topic.name))
        for topic in topics
        for each in topic.partitions
    ]
