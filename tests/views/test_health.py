from __future__ import annotations

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import PartitionDescription
from barnabas.model import TopicPartition
from barnabas.testing import Broker
from barnabas.views.health import PartitionHealth, cluster_health, partition_health


def health_of(*, leader: int | None, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionHealth:
    described = PartitionDescription(
        partition=0, leader=leader, leader_epoch=1, replicas=replicas, isr=isr, offline_replicas=()
    )
    return PartitionHealth(topic="any", described=described)


def test_the_brokers_of_a_cluster(broker: Broker, admin: Admin) -> None:
    health = cluster_health(admin)
    (only,) = health.brokers
    assert f"{only.host}:{only.port}" == broker.bootstrap
    assert only.is_controller
    assert not only.is_fenced
    assert health.controller_id == only.broker_id
    assert health.cluster_id


def test_partitions_of_one_broker_are_healthy(admin: Admin, topic: str) -> None:
    found = partition_health(admin.describe_topics([topic]).values())
    assert [each.topic_partition for each in found] == [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    for each in found:
        assert not each.is_unavailable
        assert not each.is_under_replicated
        assert not each.has_other_leader
        assert each.preferred_leader == each.described.leader


def test_what_is_wrong_with_a_partition() -> None:
    moved = health_of(leader=2, replicas=(1, 2), isr=(1, 2))
    assert moved.has_other_leader
    assert moved.preferred_leader == 1
    assert not moved.is_under_replicated
    behind = health_of(leader=1, replicas=(1, 2), isr=(1,))
    assert behind.is_under_replicated
    assert not behind.has_other_leader
    down = health_of(leader=None, replicas=(1,), isr=(1,))
    assert down.is_unavailable
    assert down.has_other_leader
    assert health_of(leader=None, replicas=(), isr=()).preferred_leader is None
