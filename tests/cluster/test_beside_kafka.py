"""A broker in the cluster of a real Kafka 3.9.1 controller: it obeys, copies, leads, and leaves in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse, MetadataResponsePartition
from tests.broker.raw_client import RawClient
from tests.cluster.clusters import ClusterBroker
from tests.peers.kafka_peer import Broker as KafkaBroker
from tests.peers.kafka_peer import PeerUnavailable, broker_on, jars
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

CLUSTER_ID = "WZEKwK-bS62oT3ZOSU0dgw"
KAFKA, OURS = 1, 2
PARTITIONS = 4
RECORDS = 200
METADATA_VERSION = 9


@pytest.fixture(scope="module")
def kafka_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kafka-log")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_log: Path) -> Iterator[KafkaBroker]:
    try:
        jars("3.9.1")
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("kafka")
    with broker_on(kafka_log, folder, KAFKA, CLUSTER_ID) as running:
        yield running


def our_broker(kafka: KafkaBroker, folder: Path) -> ClusterBroker:
    return ClusterBroker(
        OURS,
        folder / "ours",
        {
            "broker.id": str(OURS),
            "zookeeper.connect": f"127.0.0.1:{kafka.zookeeper_port}",
            "zookeeper.session.timeout.ms": "6000",
        },
    )


def partitions(port: int, topic: str) -> list[MetadataResponsePartition]:
    """What a broker answers about a topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    with RawClient(port) as client:
        answer: MetadataResponse = client.ask("Metadata", METADATA_VERSION, request)
        return [each for found in answer.topics for each in found.partitions]


def controller(port: int) -> int:
    with RawClient(port) as client:
        answer: MetadataResponse = client.ask("Metadata", METADATA_VERSION, MetadataRequest(topics=[]))
        return answer.controller_id


def wait_for_isr(topic: str, *ports: int) -> None:
    """Until these brokers know all replicas in sync."""
    for port in ports:
        wait_until(
            lambda port=port: [len(each.isr_nodes) for each in partitions(port, topic)] == [2] * PARTITIONS,  # type: ignore[misc]
            lambda port=port: partitions(port, topic),
        )


def use(bootstrap: str, topic: str) -> None:
    """Writes records to all replicas, and reads them."""
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
    read(bootstrap, topic)


def read(bootstrap: str, topic: str) -> None:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in range(PARTITIONS)])
        found: set[bytes | None] = set()
        while len(found) < RECORDS:
            found |= {record.value for record in consumer.poll(1_000)}


def wait_for_deletion(directory: Path, topic: str) -> None:
    """Until the directories are gone, or marked for a later deletion."""
    wait_until(
        lambda: not any(re.fullmatch(rf"{topic}-\d+", each.name) for each in directory.iterdir()),
        lambda: list(directory.iterdir()),
    )


def test_our_broker_obeys_a_kafka_controller(kafka: KafkaBroker, tmp_path: Path) -> None:
    bootstrap, topic = f"127.0.0.1:{kafka.port}", "of-kafka"
    with our_broker(kafka, tmp_path) as ours:
        wait_until(lambda: controller(ours.port) == KAFKA)
        wait_until(lambda: len(ours.metadata([]).brokers) == 2, lambda: ours.metadata([]))
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([topic], partitions=PARTITIONS, replication_factor=2)
        wait_for_isr(topic, ours.port, kafka.port)
        assert {each.leader_id for each in partitions(ours.port, topic)} == {KAFKA, OURS}
        use(bootstrap, topic)
        # The leaders of our partitions move to Kafka before our broker ends.
        assert ours.stop() == 0
        assert "The controller has approved the shutdown" in ours.log_text()
        assert {each.leader_id for each in partitions(kafka.port, topic)} == {KAFKA}
        read(bootstrap, topic)
        ours.start()
        wait_for_isr(topic, ours.port, kafka.port)
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.delete_topics([topic])
        wait_for_deletion(tmp_path / "ours", topic)
        # A broker that is killed keeps its registration for a while, and the next test has the same broker id.
        assert ours.stop() == 0


def test_a_kafka_broker_obeys_our_controller(kafka: KafkaBroker, kafka_log: Path, tmp_path: Path) -> None:
    bootstrap, topic = f"127.0.0.1:{kafka.port}", "of-ours"
    with our_broker(kafka, tmp_path) as ours:
        wait_until(lambda: len(ours.metadata([]).brokers) == 2, lambda: ours.metadata([]))
        take_office(kafka)
        wait_until(lambda: controller(ours.port) == controller(kafka.port) == OURS)
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([topic], partitions=PARTITIONS, replication_factor=2)
        wait_for_isr(topic, ours.port, kafka.port)
        assert {each.leader_id for each in partitions(kafka.port, topic)} == {KAFKA, OURS}
        use(bootstrap, topic)
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.delete_topics([topic])
        wait_for_deletion(kafka_log, topic)
        wait_for_deletion(tmp_path / "ours", topic)
        # Kafka becomes the controller again, and lets our broker go.
        assert ours.stop() == 0
        wait_until(lambda: controller(kafka.port) == KAFKA)


def take_office(kafka: KafkaBroker) -> None:
    """Makes our broker the controller: Kafka does not take part in the election."""
    tree = KazooClient(f"127.0.0.1:{kafka.zookeeper_port}")
    tree.start()
    kafka.process.pause()
    try:
        tree.delete("/controller")
        wait_until(lambda: tree.exists("/controller"), "our broker is the controller")
    finally:
        kafka.process.resume()
        tree.stop()
        tree.close()
