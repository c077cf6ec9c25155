"""Three brokers on a real ZooKeeper: roles and metadata reach them, the controller moves, leaders leave in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.admin.results import ConfigResource, ConfigSource, NewTopic, ResourceType
from barnabas.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.cluster.clusters import Cluster, cluster
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

TOPIC = "orders"
PARTITIONS = 6


def make_topic(brokers: Cluster) -> None:
    with brokers.admin() as admin:
        admin.create_topics([TOPIC], partitions=PARTITIONS, replication_factor=3)
    brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)


def leaders(brokers: Cluster) -> list[int]:
    [topic] = brokers.running[0].metadata([TOPIC]).topics
    return [each.leader_id for each in topic.partitions]


def produce(brokers: Cluster, *values: bytes) -> None:
    with brokers.producer(acks="all") as producer:
        for number, value in enumerate(values):
            producer.send(TOPIC, value, partition=number % PARTITIONS)
        producer.flush()


def consume(brokers: Cluster, count: int) -> set[bytes | None]:
    with brokers.consumer() as consumer:
        consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        found: set[bytes | None] = set()
        while len(found) < count:
            found |= {record.value for record in consumer.poll(1_000)}
        return found


def test_a_leader_that_stops_in_order_leaves_no_partition_without_a_leader(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with cluster(3, tmp_path, zookeeper) as brokers:
        make_topic(brokers)
        assert set(leaders(brokers)) == {1, 2, 3}
        produce(brokers, *(b"%d" % number for number in range(12)))
        leaving = next(each.broker_id for each in brokers if each.broker_id != brokers.wait_for_controller())
        assert brokers[leaving].stop() == 0
        assert "The controller has approved the shutdown" in brokers[leaving].log_text()
        # The leaders had moved before the broker ended.
        assert leaving not in leaders(brokers)
        produce(brokers, *(b"later %d" % number for number in range(12)))
        assert len(consume(brokers, 24)) == 24
        brokers[leaving].start()
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)


def test_the_controller_stops_in_order_and_another_takes_over(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with cluster(3, tmp_path, zookeeper) as brokers:
        make_topic(brokers)
        first = brokers.wait_for_controller()
        assert brokers[first].stop() == 0
        assert brokers.wait_for_controller(other_than=first) != first
        assert first not in leaders(brokers)
        produce(brokers, *(b"%d" % number for number in range(12)))
        with brokers.admin() as admin:
            admin.create_topics(["later"], partitions=2, replication_factor=2)
        brokers.wait_for_topic("later", partitions=2, isr=2)
        brokers[first].start()
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)


def test_a_leader_that_is_killed_is_replaced_and_joins_again(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with cluster(3, tmp_path, zookeeper) as brokers:
        make_topic(brokers)
        produce(brokers, *(b"%d" % number for number in range(12)))
        killed = brokers.wait_for_leader(TOPIC, 0)
        brokers[killed].kill()
        wait_until(lambda: killed not in leaders(brokers), lambda: leaders(brokers))
        produce(brokers, *(b"later %d" % number for number in range(12)))
        assert len(consume(brokers, 24)) == 24
        brokers[killed].start()
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)


def test_a_broker_knows_the_settings_of_topics_that_it_has_no_replica_of(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    settings = {"retention.ms": "86400000", "cleanup.policy": "compact"}
    with cluster(2, tmp_path, zookeeper) as brokers:
        new = NewTopic(name=TOPIC, assignment={0: [1]}, configs=settings)
        with brokers.admin() as admin:
            admin.create_topics([new])
        brokers.wait_for_topic(TOPIC)
        for each in (1, 2):
            assert topic_settings(brokers, each) == settings
        # The first change of a setting names one: the others stay.
        with brokers.admin() as admin:
            admin.alter_configs({ConfigResource(ResourceType.TOPIC, TOPIC): {"retention.ms": "3600000"}})
            wait_until(
                lambda: topic_settings(brokers, 2) == {**settings, "retention.ms": "3600000"},
                lambda: topic_settings(brokers, 2),
            )
            # Another topic of this name has none of them.
            admin.delete_topics([TOPIC])
            mark = f"/admin/delete_topics/{TOPIC}"
            wait_until(lambda: not brokers.tree.retry(brokers.tree.exists, mark))
            admin.create_topics([NewTopic(name=TOPIC, assignment={0: [1]})])
        brokers.wait_for_topic(TOPIC)
        assert topic_settings(brokers, 2) == {}


def topic_settings(brokers: Cluster, broker_id: int) -> dict[str, str | None]:
    """The settings of the topic itself, as this broker answers."""
    resource = DescribeConfigsResource(
        resource_type=int(ResourceType.TOPIC), resource_name=TOPIC, configuration_keys=None
    )
    with brokers[broker_id].client() as client:
        [answer] = client.ask("DescribeConfigs", 4, DescribeConfigsRequest(resources=[resource])).results
    assert answer.error_code == 0, answer
    return {
        each.name: each.value
        for each in answer.configs
        if each.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    }
