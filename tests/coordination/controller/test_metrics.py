"""Metrics of the controller: what it counts in its cluster, what it is doing, and how long that takes."""

from __future__ import annotations

from pathlib import Path

from barnabas.broker.metrics.controller_metrics import register_controller
from barnabas.coordination.controller.counts import Counts
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.metrics.registry import Registry
from barnabas.model import BrokerId, TopicPartition
from tests.coordination.controller.model import ModelBroker, ModelCluster, run


def active(cluster: ModelCluster) -> ModelBroker:
    [found] = [each for each in cluster.brokers.values() if each.controller.is_active]
    return found


def readings(registry: Registry) -> dict[str, float]:
    lines = registry.render().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def test_counts_of_a_cluster_that_loses_a_broker(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("a", [1, 2], [2, 3], [3])
        await cluster.create("b", [3, 2])
        controller = active(cluster).controller
        assert controller.counts() == Counts(active_brokers=3, topics=2, partitions=4)
        others = [each for each in cluster.brokers.values() if each.controller is not controller]
        assert [each.controller.counts() for each in others] == [Counts(), Counts()]

        await cluster.kill(3)
        assert controller.counts() == Counts(
            active_brokers=2, topics=2, partitions=4, offline_partitions=1, preferred_replica_imbalance=2
        )
        # The broker that is gone has a replica.
        await controller.delete_topics(["b"])
        await cluster.settle()
        assert controller.counts() == Counts(
            active_brokers=2,
            topics=2,
            partitions=4,
            offline_partitions=1,
            preferred_replica_imbalance=1,
            topics_to_delete=1,
            replicas_to_delete=1,
            topics_ineligible_to_delete=1,
            replicas_ineligible_to_delete=1,
        )
        await cluster.start_broker(3)
        assert controller.counts() == Counts(active_brokers=3, topics=1, partitions=3)

    run(scenario, tmp_path, 1, 2, 3)


def test_names_and_times(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        controller = active(cluster).controller
        registry = Registry()
        register_controller(registry, controller)
        await cluster.create("t", [2, 3])
        found = readings(registry)
        name = "kafka_controller_kafkacontroller_"
        assert found[name + "activecontrollercount"] == 1
        assert found[name + "globaltopiccount"] == 1
        assert found[name + "activebrokercount"] == 3
        assert found[name + "fencedbrokercount"] == 0
        assert found[name + "controllerstate"] == 0
        assert found["kafka_controller_controllereventmanager_eventqueuesize"] == 0
        elections = "kafka_controller_controllerstats_leaderelectiontime_seconds_count"
        before = found[elections]
        waited = found["kafka_controller_controllereventmanager_eventqueuetime_seconds_count"]
        await cluster.kill(2)
        await cluster.kill(3)
        found = readings(registry)
        assert found[elections] >= before + 2
        assert found["kafka_controller_controllereventmanager_eventqueuetime_seconds_count"] > waited
        assert found[name + "offlinepartitionscount"] == 1
        unclean = "kafka_controller_controllerstats_uncleanleaderelections_total"
        assert found[unclean] == 0
        await cluster.start_broker(2)
        await controller.elect_leaders([TopicPartition("t", 0)], ElectionType.UNCLEAN)
        await cluster.settle()
        assert await cluster.state("t", 0) == (BrokerId(2), 3, (2,))
        found = readings(registry)
        assert found[unclean] == 1
        assert found[name + "offlinepartitionscount"] == 0

    run(scenario, tmp_path, 1, 2, 3)
