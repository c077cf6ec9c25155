"""In-sync replicas that leave and return, as clients, metrics and the controller see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.metrics.replica_metrics import register_replicas
from barnabas.broker.replication.fetchers import fetcher_number
from barnabas.broker.waiting.turns import AT_ONCE
from barnabas.config.broker_config import BrokerConfig
from barnabas.errors import NONE, NotEnoughReplicas, RequestTimedOut
from barnabas.metrics.registry import Registry
from barnabas.model import BrokerId
from barnabas.protocol.messages.produce_response import PartitionProduceResponse
from tests.broker.record_requests import batch, produce_request
from tests.broker.replication.simulated_cluster import TOPIC, SimulatedCluster
from tests.simulation.network import Network
from tests.simulation.world import World

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ACKS_ALL = -1


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    """One partition on three brokers, led by the first."""
    world = World(7)
    cluster = SimulatedCluster(world, Network(world), partition_count=1)
    try:
        cluster.start()
        cluster.run_until_led()
        yield cluster
    finally:
        world.close()


def produce(cluster: SimulatedCluster, value: bytes) -> PartitionProduceResponse:
    request = produce_request(TOPIC, batch(value), acks=ACKS_ALL)
    request.timeout_ms = 10_000
    answer = cluster.ask(cluster.states[0].leader, "Produce", 9, request)
    response: PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return response


def isr(cluster: SimulatedCluster) -> list[int]:
    return sorted(cluster.states[0].isr)


def vanish(cluster: SimulatedCluster, broker_id: BrokerId) -> None:
    """The broker is gone, and the controller does not notice."""
    cluster.hosts[broker_id].kill()


def test_a_silent_replica_leaves_and_returns(cluster: SimulatedCluster) -> None:
    world = cluster.world
    assert produce(cluster, b"a").error_code == NONE
    vanish(cluster, THREE)
    began_s = world.now_s
    # The leader waits for the replica until it has lagged for too long.
    assert produce(cluster, b"b").error_code == NONE
    assert isr(cluster) == [ONE, TWO]
    assert 2.0 <= world.now_s - began_s <= 4.0
    partition = cluster.hosts[ONE].parts.replicas.partition(TOPIC, 0)
    assert partition.is_under_replicated
    assert partition.min_isr_surplus == 0
    vanish(cluster, TWO)
    # The leader alone does not move the high watermark, and takes no more than that.
    assert produce(cluster, b"c").error_code == RequestTimedOut.code
    assert isr(cluster) == [ONE]
    assert partition.min_isr_surplus == -1
    assert produce(cluster, b"d").error_code == NotEnoughReplicas.code
    for each in (TWO, THREE):
        cluster.restart(each)
    world.run_until(lambda: isr(cluster) == [ONE, TWO, THREE])
    world.run_until(lambda: partition.min_isr_surplus > 0)
    assert not partition.is_under_replicated
    assert produce(cluster, b"e").error_code == NONE
    counts = cluster.hosts[ONE].parts.replicas.isr_metrics
    assert (counts.shrinks, counts.expands, counts.failures) == (2, 2, 0)


def test_the_lag_of_replicas(cluster: SimulatedCluster) -> None:
    world = cluster.world
    assert produce(cluster, b"a").error_code == NONE
    replicas = cluster.hosts[TWO].parts.replicas
    world.run_until(lambda: [each.lag for each in replicas.lags()] == [0])
    [lag] = replicas.lags()
    assert (lag.leader, lag.fetcher, lag.topic_partition.topic) == (ONE, 0, TOPIC)
    assert replicas.failed_count() == 0
    assert replicas.topic_metrics.of(TOPIC).replication_bytes_in > 0
    assert cluster.hosts[ONE].parts.replicas.topic_metrics.of(TOPIC).replication_bytes_out > 0


def test_the_metrics_of_partitions_and_fetchers(cluster: SimulatedCluster) -> None:
    def readings(broker_id: BrokerId) -> dict[str, float]:
        metrics = Registry()
        register_replicas(metrics, cluster.hosts[broker_id].parts.replicas, is_in_cluster=True)
        lines = (line.rpartition(" ") for line in metrics.render().splitlines() if line[0] != "#")
        return {name: float(value) for name, _, value in lines}

    def of_partition(broker_id: BrokerId) -> dict[str, float]:
        prefix, suffix = "kafka_cluster_partition_", f'{{topic="{TOPIC}",partition="0"}}'
        return {
            name.removeprefix(prefix).removesuffix(suffix): value
            for name, value in readings(broker_id).items()
            if name.startswith(prefix)
        }

    assert produce(cluster, b"a").error_code == NONE
    nothing = dict.fromkeys(
        ("underreplicated", "insyncreplicascount", "replicascount", "underminisr", "atminisr"), 0.0
    )
    nothing["laststableoffsetlag"] = 0.0
    assert of_partition(ONE) == {**nothing, "insyncreplicascount": 3, "replicascount": 3}
    assert of_partition(TWO) == nothing
    fetcher = '{clientId="ReplicaFetcherThread-0-1"}'
    found = readings(TWO)
    assert found[f"kafka_server_fetcherstats_bytes_total{fetcher}"] == len(batch(b"a"))
    assert found[f"kafka_server_fetcherstats_requests_total{fetcher}"] >= 2
    vanish(cluster, THREE)
    assert produce(cluster, b"b").error_code == NONE
    few = {"underreplicated": 1, "insyncreplicascount": 2, "replicascount": 3, "atminisr": 1}
    assert of_partition(ONE) == {**nothing, **few}


def test_the_number_of_fetchers_changes(cluster: SimulatedCluster) -> None:
    world = cluster.world
    host = cluster.hosts[TWO]
    assert produce(cluster, b"a").error_code == NONE
    [lag] = host.parts.replicas.lags()
    assert lag.fetcher == 0
    host.settings.current = BrokerConfig({**host.settings.current.static, "num.replica.fetchers": "7"})
    number = fetcher_number(lag.topic_partition, 7)
    assert number != 0
    world.run_until(lambda: [each.fetcher for each in host.parts.replicas.lags()] == [number])
    assert produce(cluster, b"b").error_code == NONE
    world.run_until(lambda: host.copy(0) == cluster.hosts[ONE].copy(0))
    # The fetcher without partitions ends.
    world.run_until(lambda: len(host.replication.fetchers) == 1)


@pytest.mark.slow
def test_followers_of_many_partitions() -> None:
    """So many that a leader reads them in turns, and still waits for each of them."""
    world = World(5)
    count = 2 * AT_ONCE
    cluster = SimulatedCluster(world, Network(world), partition_count=count)
    try:
        cluster.start()
        cluster.run_until_led()
        for index in (0, 1, AT_ONCE, count - 1):
            request = produce_request(TOPIC, batch(b"value"), partition=index, acks=ACKS_ALL)
            request.timeout_ms = 10_000
            answer = cluster.ask(cluster.states[index].leader, "Produce", 9, request)
            assert answer.responses[0].partition_responses[0].error_code == NONE
            copies = [host.copy(index) for host in cluster.hosts.values()]
            assert copies[0]
            assert copies == [copies[0]] * 3
    finally:
        world.close()
