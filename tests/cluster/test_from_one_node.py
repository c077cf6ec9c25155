"""A single node becomes a cluster, as docs/howto/cluster.md describes: it keeps its records, settings and groups."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.admin.results import ConfigResource, NewTopic, ResourceType
from barnabas.model import TopicPartition
from barnabas.testing import Broker
from tests.cluster.clusters import Cluster, cluster
from tests.cluster.loads import read_topic
from tests.peers.zookeeper_peer import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.peer]

PARTITIONS: Final = 3
RECORDS: Final = 300
RETENTION_MS: Final = "987654321"
BROKER_ID: Final = 1
COMMAND_TIMEOUT_S: Final = 180
OFFSETS_PARTITIONS: Final = 4
GROUP: Final = "billing"
OFFSETS: Final = {TopicPartition("orders", partition): 7 + partition for partition in range(PARTITIONS)}


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_single_node_becomes_a_cluster(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(0, tmp_path, zookeeper) as brokers:
        first = brokers.add(BROKER_ID)
        topic_id = fill_single_node(first.directory)
        first.begin_start()
        assert first.wait() == 1
        assert f"barnabas cluster migrate --log-dirs {first.directory}" in first.log_text()
        command("cluster", "migrate", "--log-dirs", str(first.directory), "--zookeeper", brokers.connect)
        first.start()
        for broker_id in (2, 3):
            brokers.add(broker_id).start()
        brokers.wait_for_brokers()
        check_topic(brokers, topic_id)

        plan = str(tmp_path / "plan.json")
        bootstrap = ("-b", brokers.bootstrap)
        command("reassign", "plan", "--all", "--internal", "-r", "3", "-o", plan, *bootstrap)
        command("reassign", "run", plan, "--throttle", "50MB", "--yes", *bootstrap)
        brokers.wait_for_topic("orders", partitions=PARTITIONS, isr=3)
        brokers.wait_for_topic("__consumer_offsets", partitions=OFFSETS_PARTITIONS, isr=3)
        check_throttle_is_gone(brokers)
        command("leaders", "elect", "--all", *bootstrap)
        first.kill()
        for partition in range(PARTITIONS):
            brokers.wait_for_leader("orders", partition, other_than=BROKER_ID)
        check_topic(brokers, topic_id)


def fill_single_node(directory: Path) -> str | None:
    starting = Broker(
        directory=directory, broker_id=BROKER_ID, offsets_topic_num_partitions=OFFSETS_PARTITIONS
    )
    with starting as broker:
        with broker.admin() as admin:
            configs = {"retention.ms": RETENTION_MS}
            admin.create_topics([NewTopic(name="orders", partitions=PARTITIONS, configs=configs)])
            topic_id = admin.describe_topics(["orders"])["orders"].topic_id
        with broker.producer() as producer:
            for number in range(RECORDS):
                producer.send("orders", str(number).encode(), partition=number % PARTITIONS)
            producer.flush()
        with broker.admin() as admin:
            admin.alter_group_offsets(GROUP, OFFSETS)
    return topic_id


def check_throttle_is_gone(brokers: Cluster) -> None:
    resources = [ConfigResource(ResourceType.BROKER, str(each)) for each in (1, 2, 3)]
    with brokers.admin() as admin:
        described = admin.describe_configs(resources)
    for settings in described.values():
        throttles = (each for name, each in settings.items() if name.endswith("replication.throttled.rate"))
        assert all(each.is_default for each in throttles)


def check_topic(brokers: Cluster, topic_id: str | None) -> None:
    with brokers.admin() as admin:
        assert admin.describe_topics(["orders"])["orders"].topic_id == topic_id
        resource = ConfigResource(ResourceType.TOPIC, "orders")
        assert admin.describe_configs([resource])[resource]["retention.ms"].value == RETENTION_MS
        committed = admin.list_group_offsets(GROUP)
        assert {at: each.offset for at, each in committed.items()} == OFFSETS
    found = read_topic(brokers, "orders", PARTITIONS)
    for partition, records in found.items():
        assert [int(value) for _, value in records] == list(range(partition, RECORDS, PARTITIONS))
