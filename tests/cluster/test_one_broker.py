"""One broker on a real ZooKeeper: what it writes there, restarts, lost sessions, and why it may not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.clusters import Cluster, cluster
from tests.peers.zookeeper_peer import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.peer]

TOPIC = "orders"


def produce(brokers: Cluster, *values: bytes) -> None:
    with brokers.producer() as producer:
        for value in values:
            producer.send(TOPIC, value)
        producer.flush()


def consume(brokers: Cluster, count: int) -> list[bytes | None]:
    with brokers.consumer() as consumer:
        consumer.assign([(TOPIC, 0)])
        found: list[bytes | None] = []
        while len(found) < count:
            found += [record.value for record in consumer.poll(1.0)]
        return found


def test_a_broker_registers_as_kafka_does_and_keeps_its_records(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with cluster(1, tmp_path, zookeeper, broker_rack="a") as brokers:
        registration = brokers.node("/brokers/ids/1")
        assert registration["version"] == 5
        assert registration["endpoints"] == [f"PLAINTEXT://{brokers[1].address}"]
        assert (registration["rack"], registration["features"]) == ("a", {})
        stat = brokers.tree.exists("/brokers/ids/1")
        assert (stat.version, brokers.tree.exists("/consumers") is not None) == (1, True)
        assert brokers.node("/controller")["brokerid"] == 1
        cluster_id = brokers.node("/cluster/id")["id"]

        with brokers.admin() as admin:
            admin.create_topics([TOPIC])
        brokers.wait_for_topic(TOPIC)
        produce(brokers, b"1", b"2")
        before = brokers.wait_for_registration(1)
        brokers[1].restart()
        assert brokers.wait_for_registration(1, other_than=before) > before
        assert f"cluster {cluster_id}" in brokers[1].log_text()
        produce(brokers, b"3")
        assert consume(brokers, 3) == [b"1", b"2", b"3"]
        assert brokers[1].stop() == 0
        assert brokers.broker_epoch(1) is None
