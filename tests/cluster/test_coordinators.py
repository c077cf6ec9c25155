"""Groups and transactions in a cluster: coordinators move, markers reach the leaders of other brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.consumer.consumer import Consumer
from barnabas.model import TopicPartition
from tests.cluster.clusters import Cluster, cluster
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import Deadline

pytestmark = [pytest.mark.slow, pytest.mark.peer]

TOPIC = "orders"
PARTITIONS = 6
GROUP = "billing"
REPLICATED = {
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
}


def make_topic(brokers: Cluster) -> None:
    with brokers.admin() as admin:
        admin.create_topics([TOPIC], partitions=PARTITIONS, replication_factor=3)
    brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)


def read_committed(brokers: Cluster, count: int) -> set[bytes | None]:
    with brokers.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        return poll(consumer, count)


def poll(consumer: Consumer, count: int) -> set[bytes | None]:
    deadline = Deadline()
    found: set[bytes | None] = set()
    while len(found) < count:
        found |= {record.value for record in consumer.poll(500)}
        deadline.check(f"{len(found)} of {count} records")
    return found


def values(name: str, count: int = PARTITIONS) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


def coordinator_of(brokers: Cluster, topic: str) -> int:
    """The broker with the first partition of a coordinator's topic."""
    brokers.wait_for_topic(topic, partitions=3)
    return brokers.wait_for_leader(topic, 0)


def test_transactions_end_on_all_brokers_while_their_coordinators_move(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with cluster(3, tmp_path, zookeeper, **REPLICATED) as brokers:
        make_topic(brokers)
        expected: set[bytes | None] = set()
        producers = [brokers.producer(transactional_id=f"id-{number}") for number in range(3)]

        def write(name: str) -> None:
            """A transaction of each producer on all partitions; those of the last one are aborted."""
            for number, producer in enumerate(producers):
                sent = values(f"{name}-{number}")
                producer.begin_transaction()
                for partition, value in enumerate(sent):
                    producer.send(TOPIC, value, partition=partition)
                if number == len(producers) - 1:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    expected.update(sent)

        try:
            write("first")
            brokers[coordinator_of(brokers, "__transaction_state")].kill()
            write("killed")
        finally:
            for producer in producers:
                producer.close()
        assert read_committed(brokers, len(expected)) == expected


def test_a_group_keeps_its_offsets_when_its_coordinator_is_gone(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with cluster(3, tmp_path, zookeeper, **REPLICATED) as brokers:
        make_topic(brokers)
        with brokers.producer(acks="all") as producer:
            for partition, value in enumerate(values("first")):
                producer.send(TOPIC, value, partition=partition)
        with brokers.consumer(group_id=GROUP, enable_auto_commit=False) as consumer:
            consumer.subscribe([TOPIC])
            assert poll(consumer, PARTITIONS) == set(values("first"))
            consumer.commit()
            with brokers.admin() as admin:
                gone = admin.describe_groups([GROUP])[GROUP].coordinator
            assert gone is not None
            brokers[gone].kill()
            with brokers.producer(acks="all") as producer:
                for partition, value in enumerate(values("later")):
                    producer.send(TOPIC, value, partition=partition)
            assert poll(consumer, PARTITIONS) == set(values("later"))
            consumer.commit()
        with brokers.admin() as admin:
            offsets = admin.list_group_offsets(GROUP)
            assert admin.describe_groups([GROUP])[GROUP].coordinator != gone
        assert {key: each.offset for key, each in offsets.items()} == {
            TopicPartition(TOPIC, partition): 2 for partition in range(PARTITIONS)
        }
