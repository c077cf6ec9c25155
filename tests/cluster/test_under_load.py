"""A cluster loses a leader, its controller, each broker in turn, and moves partitions, all under load with acks=all.

Nothing that was confirmed is lost, nothing is invented or reordered, and all replicas are in sync again at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Final
from uuid import uuid4

import pytest

from barnabas.client.admin.results import NewTopic
from barnabas.model import TopicPartition
from tests.cluster.clusters import Cluster, cluster
from tests.cluster.loads import AiokafkaLoad, ConfluentLoad, JavaLoad, Load, OwnLoad, read_topic
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

BROKERS: Final = 4
PARTITIONS: Final = 4
REPLICAS: Final = 3


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[Cluster]:
    with cluster(BROKERS, tmp_path_factory.mktemp("brokers"), zookeeper, min_insync_replicas=2) as running:
        yield running


@pytest.fixture(scope="module")
def loads(brokers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Load]]:
    """Four producers at once, each with a topic of its own on the first three brokers: ours, and those of Java,
    confluent-kafka and aiokafka.

    They run through all tests. At the end everything that they have confirmed is there.
    """
    orders = ([1, 2, 3], [2, 3, 1], [3, 1, 2])
    assignment = {partition: orders[partition % REPLICAS] for partition in range(PARTITIONS)}
    topics = [f"{name}-{uuid4().hex[:8]}" for name in ("own", "java", "confluent", "aiokafka")]
    with brokers.admin() as admin:
        admin.create_topics([NewTopic(name=topic, assignment=assignment) for topic in topics])
    wait_until_in_sync(brokers, topics)
    with ExitStack() as running:
        own, java, confluent, aiokafka = topics
        all_loads: list[Load] = [
            running.enter_context(OwnLoad(brokers, own, PARTITIONS)),
            running.enter_context(JavaLoad(brokers, java, PARTITIONS, tmp_path_factory.mktemp("java"))),
            running.enter_context(ConfluentLoad(brokers, confluent, PARTITIONS)),
            running.enter_context(AiokafkaLoad(brokers, aiokafka, PARTITIONS)),
        ]
        wait_for_more(all_loads)
        yield all_loads
    wait_until_in_sync(brokers, topics)
    for load in all_loads:
        load.check(read_topic(brokers, load.topic, PARTITIONS))


def wait_until_in_sync(brokers: Cluster, topics: Iterable[str]) -> None:
    for topic in topics:
        brokers.wait_for_topic(topic, partitions=PARTITIONS, isr=REPLICAS)


def topics_of(loads: list[Load]) -> list[str]:
    return [load.topic for load in loads]


def wait_for_more(loads: list[Load]) -> None:
    for load in loads:
        load.wait_for_more()


def test_a_leader_is_killed(brokers: Cluster, loads: list[Load]) -> None:
    for partition in range(2):
        leader = brokers.wait_for_leader(loads[0].topic, partition)
        brokers[leader].kill()
        brokers.wait_for_leader(loads[0].topic, partition, other_than=leader)
        wait_for_more(loads)
        brokers[leader].start()
        wait_until_in_sync(brokers, topics_of(loads))
    wait_for_more(loads)


def test_the_controller_is_killed(brokers: Cluster, loads: list[Load]) -> None:
    for _ in range(2):
        controller = brokers.wait_for_controller()
        brokers[controller].kill()
        brokers.wait_for_controller(other_than=controller)
        wait_for_more(loads)
        brokers[controller].start()
        wait_until_in_sync(brokers, topics_of(loads))
    wait_for_more(loads)


def test_each_broker_is_restarted_in_turn(brokers: Cluster, loads: list[Load]) -> None:
    for broker in brokers:
        assert broker.stop() == 0, broker.log_text()[-4000:]
        wait_for_more(loads)
        broker.start()
        wait_until_in_sync(brokers, topics_of(loads))
        wait_for_more(loads)


def test_partitions_are_moved(brokers: Cluster, loads: list[Load]) -> None:
    for orders in ([2, 3, 4], [4, 1, 2]):
        targets = {
            TopicPartition(topic, partition): orders
            for topic in topics_of(loads)
            for partition in range(PARTITIONS)
        }
        with brokers.admin() as admin:
            admin.alter_reassignments(targets)
            wait_until(lambda admin=admin: not admin.list_reassignments())  # type: ignore[misc]
            described = admin.describe_topics(topics_of(loads))
        for found in described.values():
            assert [list(each.replicas) for each in found.partitions] == [orders] * PARTITIONS
        wait_for_more(loads)
