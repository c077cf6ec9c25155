"""Clusters with `inter.broker.protocol.version` below 2.7, where leaders write their in-sync replicas themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.admin.results import NewTopic
from barnabas.log.checkpoints import id_to_text
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.broker.raw_client import RawClient
from tests.cluster.clusters import Cluster, cluster, require_zookeeper
from tests.cluster.loads import OwnLoad, read_topic
from tests.peers.kafka_cluster import KafkaBroker
from tests.peers.kafka_peer import V3, PeerUnavailable, jars
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

LEVEL = "2.6"
TOPIC = "orders"
PARTITIONS = 3


def in_sync(brokers: Cluster) -> list[int]:
    """How many replicas of each partition are in sync, as ZooKeeper has it."""
    path = f"/brokers/topics/{TOPIC}/partitions"
    return [len(brokers.node(f"{path}/{index}/state")["isr"]) for index in range(PARTITIONS)]


def topic_ids(brokers: Cluster) -> set[bytes]:
    """What the brokers answer clients about the topic."""
    found = set()
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    for broker in brokers:
        with RawClient(broker.port) as client:
            found |= {each.topic_id for each in client.ask("Metadata", 12, request).topics}
    return found


def test_replicas_leave_and_join(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    settings = {
        "inter_broker_protocol_version": LEVEL,
        "replica_lag_time_max_ms": 1_000,
        # The leaders notice first that a broker hangs.
        "zookeeper_session_timeout_ms": 20_000,
    }
    with cluster(3, tmp_path, zookeeper, **settings) as brokers:
        with brokers.admin() as admin:
            assignment = {0: [1, 2, 3], 1: [2, 3, 1], 2: [1, 3, 2]}
            admin.create_topics([NewTopic(name=TOPIC, assignment=assignment)])
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)
        # Not all brokers could know a topic id, so none has one to tell: clients would use it with all.
        assert topic_ids(brokers) == {ZERO_UUID}
        with OwnLoad(brokers, TOPIC, PARTITIONS) as load:
            load.wait_for_more()
            epoch = brokers.wait_for_registration(3)
            brokers[3].pause()
            wait_until(lambda: in_sync(brokers) == [2] * PARTITIONS, lambda: in_sync(brokers))
            load.wait_for_more()
            brokers[3].resume()
            wait_until(lambda: in_sync(brokers) == [3] * PARTITIONS, lambda: in_sync(brokers))
            assert brokers.broker_epoch(3) == epoch
            # The controller has read the notices, and tells everybody.
            brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)
            wait_until(lambda: not brokers.tree.get_children("/isr_change_notification"))
            brokers[2].kill()
            load.wait_for_more()
            brokers[2].start()
            brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)
            for partition in range(PARTITIONS):
                load.wait_for_more_of(partition)
        assert topic_ids(brokers) == {ZERO_UUID}
        load.check(read_topic(brokers, TOPIC, PARTITIONS))
        for broker in brokers:
            assert "Traceback" not in broker.log_text()
            assert "AlterPartition" not in broker.log_text()


def test_the_level_is_raised_under_load(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """One broker after the other, across the level since which topics have ids. Nobody writes with a minority."""
    settings = {"min_insync_replicas": 2, "replica_lag_time_max_ms": 1_000}
    with cluster(3, tmp_path, zookeeper, inter_broker_protocol_version=LEVEL, **settings) as brokers:
        with brokers.admin() as admin:
            assignment = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
            admin.create_topics([NewTopic(name=TOPIC, assignment=assignment)])
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)
        with OwnLoad(brokers, TOPIC, PARTITIONS) as load:
            load.wait_for_more()
            for broker_id in (1, 2, 3):
                brokers[broker_id].stop()
                brokers.add(broker_id, **settings).start()
                brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=3)
                for partition in range(PARTITIONS):
                    load.wait_for_more_of(partition)
        [topic_id] = topic_ids(brokers)
        assert topic_id != ZERO_UUID
        load.check(read_topic(brokers, TOPIC, PARTITIONS))
        for broker in brokers:
            assert "Traceback" not in broker.log_text()
            # The log has the id too.
            for partition in range(PARTITIONS):
                name = broker.directory / f"{TOPIC}-{partition}" / "partition.metadata"
                assert id_to_text(topic_id) in name.read_text()


def test_beside_kafka(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """Each of the two leads, follows, and is the controller of the other."""
    require_zookeeper()
    try:
        jars(V3)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    brokers = Cluster(zookeeper, tmp_path)
    brokers.tree.ensure_path("/")
    level = {"inter.broker.protocol.version": LEVEL}
    kafka = KafkaBroker(1, tmp_path / "kafka", brokers.connect, level)
    try:
        kafka.start()
        kafka.wait_until_ready()
        ours = brokers.add(2, inter_broker_protocol_version=LEVEL)
        ours.start()
        brokers.wait_for_brokers(1, 2)
        with brokers.admin() as admin:
            admin.create_topics({TOPIC: PARTITIONS}, replication_factor=2)
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=2)
        with OwnLoad(brokers, TOPIC, PARTITIONS) as load:
            load.wait_for_more()
            # Kafka is away, and comes back to our controller and our leaders.
            kafka.stop()
            brokers.wait_for_controller()
            assert brokers.wait_for_controller() == 2
            load.wait_for_more()
            kafka.start()
            kafka.wait_until_ready()
            brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=2)
            load.wait_for_more()
        # And we to Kafka's.
        assert ours.stop() == 0
        ours.start()
        brokers.wait_for_brokers(1, 2)
        assert brokers.wait_for_controller() == 1
        brokers.wait_for_topic(TOPIC, partitions=PARTITIONS, isr=2)
        load.check(read_topic(brokers, TOPIC, PARTITIONS))
        assert "Traceback" not in ours.log_text()
    except BaseException:
        brokers.print_logs()
        raise
    finally:
        brokers.close()
        kafka.stop()
