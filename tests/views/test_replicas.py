"""Replicas of a cluster: problems of partitions, and lag."""

from __future__ import annotations

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import ConfigResource, PartitionDescription, ResourceType
from barnabas.model import TopicPartition
from barnabas.views.health import BrokerHealth, ClusterHealth, PartitionHealth
from barnabas.views.reassignment import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    RATES,
    end_throttles,
    moves_under_way,
    throttle_changes,
    throttles,
)
from barnabas.views.replicas import ClusterReplicas, ReplicaHealth, ReplicatedPartition, cluster_replicas


def partition(
    *, leader: int | None, replicas: tuple[int, ...], isr: tuple[int, ...], min_isr: int | None = 1
) -> ReplicatedPartition:
    described = PartitionDescription(
        partition=0, leader=leader, leader_epoch=1, replicas=replicas, isr=isr, offline_replicas=()
    )
    return ReplicatedPartition(
        health=PartitionHealth(topic="any", described=described, min_isr=min_isr),
        replicas=tuple(
            ReplicaHealth(
                broker_id=each,
                is_leader=each == leader,
                is_in_sync=each in isr,
                lag=0 if each in isr else 10 * each,
            )
            for each in replicas
        ),
    )


def test_what_is_wrong_has_kafkas_names() -> None:
    assert partition(leader=1, replicas=(1, 2, 3), isr=(1, 2, 3), min_isr=2).problems == []
    assert partition(leader=1, replicas=(1,), isr=(1,)).problems == []
    two = partition(leader=1, replicas=(1, 2, 3), isr=(1, 2), min_isr=2)
    assert two.problems == ["at min ISR", "under-replicated"]
    one = partition(leader=1, replicas=(1, 2, 3), isr=(1,), min_isr=2)
    assert one.problems == ["under min ISR", "under-replicated"]
    assert one.lag == 30
    # A partition has no more in-sync replicas than replicas.
    assert partition(leader=1, replicas=(1, 2), isr=(1, 2), min_isr=3).problems == ["at min ISR"]
    down = partition(leader=None, replicas=(1, 2), isr=(2,), min_isr=None)
    assert down.problems == ["offline", "under-replicated"]


def test_brokers_and_their_replicas() -> None:
    brokers = tuple(
        BrokerHealth(broker_id=each, host="h", port=1, rack=None, is_controller=each == 1, is_fenced=False)
        for each in (1, 2)
    )
    found = ClusterReplicas(
        cluster=ClusterHealth(cluster_id="c", controller_id=1, brokers=brokers),
        topic_count=1,
        partitions=(
            partition(leader=1, replicas=(1, 2), isr=(1,)),
            partition(leader=2, replicas=(2, 3), isr=(2,)),
        ),
    )
    first, second = found.brokers()
    assert (first.leader_count, first.replica_count, first.out_of_sync_count, first.lag) == (1, 1, 0, 0)
    assert (second.leader_count, second.replica_count, second.out_of_sync_count, second.lag) == (1, 2, 1, 20)
    assert found.missing_brokers == [3]


def test_one_broker_has_no_problems(admin: Admin, topic: str) -> None:
    found = cluster_replicas(admin)
    (broker,) = found.brokers()
    assert broker.leader_count == broker.replica_count >= 2
    assert (broker.out_of_sync_count, broker.lag) == (0, 0)
    assert [each.problems for each in found.partitions if each.health.topic == topic] == [[], []]
    assert {each.health.min_isr for each in found.partitions} == {1}
    assert moves_under_way(admin) == []


def test_a_throttle_is_for_what_is_copied() -> None:
    moved, reordered = TopicPartition("t", 0), TopicPartition("t", 1)
    current = {moved: (1, 2), reordered: (1, 2)}
    changes = throttle_changes(current, {moved: (2, 3), reordered: (2, 1)}, 5_000)
    assert changes == {
        **{
            ConfigResource(ResourceType.BROKER, str(each)): dict.fromkeys(RATES, "5000") for each in (1, 2, 3)
        },
        ConfigResource(ResourceType.TOPIC, "t"): {LEADER_REPLICAS: "0:1,0:2", FOLLOWER_REPLICAS: "0:3"},
    }
    assert throttle_changes(current, {reordered: (2, 1)}, 5_000) == {}


def test_a_throttle_is_removed(admin: Admin, topic: str) -> None:
    (node,) = admin.describe_cluster().nodes
    current = {TopicPartition(topic, 0): (node.id,)}
    other = node.id + 1
    changes = throttle_changes(current, {TopicPartition(topic, 0): (other,)}, 5_000)
    admin.alter_configs({resource: own for resource, own in changes.items() if resource.name != str(other)})
    found = throttles(admin)
    assert {resource.name for resource in found} == {topic, str(node.id)}
    assert end_throttles(admin) == 2
    assert throttles(admin) == {}
    assert end_throttles(admin) == 0
