"""Sessions that end in a cluster: brokers come back with a new epoch, and the controller's office moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.clusters import Cluster, cluster
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

TOPIC = "orders"
PARTITIONS = 4


def produce(brokers: Cluster, value: bytes) -> None:
    """One record for each partition, in sync everywhere."""
    with brokers.producer(acks="all") as producer:
        sent = [producer.send(TOPIC, value, partition=partition) for partition in range(PARTITIONS)]
        producer.flush()
        for each in sent:
            each.result(60)


def consume(brokers: Cluster, count: int) -> list[bytes]:
    with brokers.consumer() as consumer:
        consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        found: list[bytes] = []
        wait_until(
            lambda: len(found) >= count,
            lambda: f"{count} records: {found}",
            meanwhile=lambda: found.extend(record.value or b"" for record in consumer.poll(500)),
        )
        return sorted(found)


def create_topic(brokers: Cluster) -> None:
    with brokers.admin() as admin:
        admin.create_topics({TOPIC: PARTITIONS}, replication_factor=2)
    brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=2)


def test_sessions_of_a_follower_and_of_the_controller(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(2, tmp_path, zookeeper) as brokers:
        create_topic(brokers)
        produce(brokers, b"1")
        controller = brokers.wait_for_controller()
        other = 3 - controller

        epoch = brokers.wait_for_registration(other)
        brokers.expire_session(other)
        brokers.wait_for_registration(other, other_than=epoch)
        brokers.wait_for_brokers(1, 2)
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=2)
        assert brokers.wait_for_controller() == controller
        produce(brokers, b"2")

        epoch = brokers.wait_for_registration(controller)
        office = brokers.tree.exists("/controller").czxid
        brokers.expire_session(controller)
        brokers.wait_for_registration(controller, other_than=epoch)
        wait_until(lambda: (node := brokers.tree.exists("/controller")) is not None and node.czxid != office)
        brokers.wait_for_brokers(1, 2)
        brokers.wait_for_controller()
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=2)
        produce(brokers, b"3")
        assert consume(brokers, 3 * PARTITIONS) == sorted([b"1", b"2", b"3"] * PARTITIONS)
        for broker in brokers:
            assert "Traceback" not in broker.log_text()
            assert broker.stop() == 0


def test_a_paused_controller_is_replaced_and_comes_back(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(2, tmp_path, zookeeper, zookeeper_session_timeout_ms=2_000) as brokers:
        create_topic(brokers)
        produce(brokers, b"1")
        controller = brokers.wait_for_controller()
        other = brokers[3 - controller]
        brokers[controller].pause()
        wait_until(lambda: other.metadata([]).controller_id == other.broker_id)
        brokers[controller].resume()
        brokers.wait_for_brokers(1, 2)
        assert brokers.wait_for_controller() == other.broker_id
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=2)
        produce(brokers, b"2")
        assert consume(brokers, 2 * PARTITIONS) == sorted([b"1", b"2"] * PARTITIONS)
