"""Transactions in a cluster of a Kafka 3.9.1 broker and one of ours.

Each coordinates some of them, marks partitions that the other leads, and verifies with the other's coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.model import TopicPartition
from tests.cluster.clusters import ClusterBroker
from tests.peers.kafka_peer import Broker as KafkaBroker
from tests.peers.kafka_peer import PeerUnavailable, broker_on, jars
from tests.waiting import Deadline, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

CLUSTER_ID = "WZEKwK-bS62oT3ZOSU0dgw"
KAFKA, OURS = 1, 2
PARTITIONS = 4
PRODUCERS = 6
TOPIC = "orders"
# Coordinators of both kinds: the partitions of their topics are spread over the brokers, one replica each.
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        jars("3.9.1")
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("kafka")
    log = tmp_path_factory.mktemp("log")
    with (
        broker_on(log, folder, KAFKA, CLUSTER_ID, SETTINGS) as kafka,
        our_broker(kafka, tmp_path_factory.mktemp("ours")) as ours,
    ):
        wait_until(lambda: len(ours.metadata([]).brokers) == 2, lambda: ours.metadata([]))
        yield f"127.0.0.1:{kafka.port},{ours.address}"


def our_broker(kafka: KafkaBroker, folder: Path) -> ClusterBroker:
    return ClusterBroker(
        OURS,
        folder / "data",
        {
            "broker.id": str(OURS),
            "zookeeper.connect": f"127.0.0.1:{kafka.zookeeper_port}",
            "zookeeper.session.timeout.ms": "60000",
            **SETTINGS,
        },
    )


def test_transactions_of_both_coordinators_on_partitions_of_both_brokers(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([TOPIC], partitions=PARTITIONS, replication_factor=2)
        wait_until(lambda: leaders(admin) == {KAFKA, OURS}, lambda: leaders(admin))
        expected: set[bytes | None] = set()
        ids = [f"id-{number}" for number in range(PRODUCERS)]
        for number, transactional_id in enumerate(ids):
            with Producer(bootstrap_servers=bootstrap, transactional_id=transactional_id) as producer:
                for commits in (False, True):
                    producer.begin_transaction()
                    sent = [
                        f"{transactional_id}-{commits}-{partition}".encode()
                        for partition in range(PARTITIONS)
                    ]
                    for partition, value in enumerate(sent):
                        producer.send(TOPIC, value, partition=partition)
                    producer.send_offsets_to_transaction(
                        {(TOPIC, 0): 10 * number + commits}, f"group-{number}"
                    )
                    if commits:
                        producer.commit_transaction()
                        expected.update(sent)
                    else:
                        producer.abort_transaction()
        described = admin.describe_transactions(ids)
        assert {each.coordinator for each in described.values()} == {KAFKA, OURS}
        assert read_committed(bootstrap, len(expected)) == expected
        for number in range(PRODUCERS):
            offsets = admin.list_group_offsets(f"group-{number}")
            assert offsets[TopicPartition(TOPIC, 0)].offset == 10 * number + 1
        wait_until(lambda: states(admin, ids) == {"CompleteCommit"}, lambda: states(admin, ids))


def leaders(admin: Admin) -> set[int | None]:
    return {each.leader for each in admin.describe_topics([TOPIC])[TOPIC].partitions}


def states(admin: Admin, ids: list[str]) -> set[str]:
    return {str(each.state) for each in admin.describe_transactions(ids).values()}


def read_committed(bootstrap: str, count: int) -> set[bytes | None]:
    deadline = Deadline()
    with Consumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        found: set[bytes | None] = set()
        while len(found) < count:
            found |= {record.value for record in consumer.poll(500)}
            deadline.check(f"{len(found)} of {count} records")
        return found
