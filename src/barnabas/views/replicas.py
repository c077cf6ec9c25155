"""The replicas of a cluster: where they are, which are in sync, and how far the others are behind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.errors import AdminErrors
from barnabas.client.admin.results import ConfigResource, ResourceType, TopicPartitionReplica
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.views.health import (
    BrokerHealth,
    ClusterHealth,
    PartitionHealth,
    cluster_health,
    partition_health,
)

MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHealth:
    """A replica of a partition. `lag` is the number of records that it lacks, None if that is unknown."""

    broker_id: int
    is_leader: bool
    is_in_sync: bool
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedPartition:
    health: PartitionHealth
    replicas: tuple[ReplicaHealth, ...]

    @property
    def problems(self) -> list[str]:
        """Kafka's words for what is wrong, the worst first; none if all is well."""
        health = self.health
        found = {
            "offline": health.is_unavailable,
            "under min ISR": health.is_under_min_isr,
            "at min ISR": health.is_at_min_isr,
            "under-replicated": health.is_under_replicated,
        }
        return [name for name, is_so in found.items() if is_so]

    @property
    def lag(self) -> int | None:
        """The records that the replica furthest behind lacks; None if no replica could be asked."""
        return max((each.lag for each in self.replicas if each.lag is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReplicas:
    """The replicas of a broker. `lag` is that of its replica furthest behind, None if it is unknown."""

    broker: BrokerHealth
    replica_count: int
    leader_count: int
    out_of_sync_count: int
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReplicas:
    cluster: ClusterHealth
    topic_count: int
    partitions: tuple[ReplicatedPartition, ...]

    def brokers(self) -> list[BrokerReplicas]:
        found: dict[int, list[ReplicaHealth]] = {}
        for partition in self.partitions:
            for replica in partition.replicas:
                found.setdefault(replica.broker_id, []).append(replica)
        return [_broker_replicas(each, found.get(each.broker_id, ())) for each in self.cluster.brokers]

    @property
    def missing_brokers(self) -> list[int]:
        """Brokers that have replicas and are not alive."""
        alive = {each.broker_id for each in self.cluster.brokers}
        named = {each.broker_id for partition in self.partitions for each in partition.replicas}
        return sorted(named - alive)


def _broker_replicas(broker: BrokerHealth, replicas: Collection[ReplicaHealth]) -> BrokerReplicas:
    return BrokerReplicas(
        broker=broker,
        replica_count=len(replicas),
        leader_count=sum(each.is_leader for each in replicas),
        out_of_sync_count=sum(not each.is_in_sync for each in replicas),
        lag=max((each.lag for each in replicas if each.lag is not None), default=None),
    )


def cluster_replicas(admin: Admin) -> ClusterReplicas:
    """All partitions of the cluster, internal ones included, with the lag of each replica."""
    topics = admin.describe_topics()
    health = partition_health(topics.values(), _min_isr(admin, topics))
    ends = _end_offsets(admin, health)
    return ClusterReplicas(
        cluster=cluster_health(admin),
        topic_count=len(topics),
        partitions=tuple(
            ReplicatedPartition(health=each, replicas=_replicas_of(each, ends)) for each in health
        ),
    )


def _min_isr(admin: Admin, topics: Iterable[str]) -> dict[str, int]:
    """The topics' min.insync.replicas, as far as a broker tells them: a topic may be deleted meanwhile."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    if not resources:
        return {}
    try:
        found = admin.describe_configs(resources, names=[MIN_ISR])
    except AdminErrors as failed:
        found = dict(failed.results)
    except KafkaError:
        return {}
    return {
        resource.name: int(entries[MIN_ISR].value or 1)
        for resource, entries in found.items()
        if MIN_ISR in entries
    }


def _end_offsets(admin: Admin, partitions: Iterable[PartitionHealth]) -> dict[TopicPartitionReplica, int]:
    """The ends of the logs of replicas that answer. Nobody has to be asked about a partition with one replica."""
    wanted = [
        TopicPartitionReplica(each.topic, each.described.partition, broker_id)
        for each in partitions
        if len(each.described.replicas) > 1
        for broker_id in each.described.replicas
    ]
    try:
        return admin.list_replica_offsets(wanted) if wanted else {}
    except AdminErrors as failed:
        return dict(failed.results)
    except KafkaError:
        return {}


def _replicas_of(
    partition: PartitionHealth, ends: Mapping[TopicPartitionReplica, int]
) -> tuple[ReplicaHealth, ...]:
    described = partition.described
    key = TopicPartition(partition.topic, described.partition)
    leader_end = None if described.leader is None else ends.get(TopicPartitionReplica(*key, described.leader))
    found = []
    for broker_id in described.replicas:
        is_leader = broker_id == described.leader
        end = ends.get(TopicPartitionReplica(*key, broker_id))
        # The follower may have been asked a moment later than the leader.
        lag = None if end is None or leader_end is None else max(leader_end - end, 0)
        found.append(
            ReplicaHealth(
                broker_id=broker_id,
                is_leader=is_leader,
                is_in_sync=broker_id in described.isr,
                lag=0 if is_leader else lag,
            )
        )
    return tuple(found)
