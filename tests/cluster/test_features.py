"""Finalized features: a cluster of Barnabas brokers has them, and Apache Kafka 3.9.1, which knows none, stays out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError

from barnabas.client.consumer.consumer import Consumer
from barnabas.errors import NONE, UnsupportedVersion
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.api_versions_response import ApiVersionsResponse
from barnabas.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from tests.broker.raw_client import RawClient
from tests.cluster.clusters import Cluster, cluster, require_zookeeper
from tests.peers.kafka_cluster import KafkaBroker
from tests.peers.kafka_peer import V3, PeerUnavailable, jars, run_tool
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import Deadline, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

KAFKA = 9
LATEST = {"group.version": 1, "transaction.version": 2}
SUPPORTED = {"group.version": (0, 1), "transaction.version": (0, 2)}
REGISTERED = {
    "group.version": {"min_version": 0, "max_version": 1},
    "transaction.version": {"min_version": 0, "max_version": 2},
}
EMPTY_NODE = {"features": {}, "version": 2, "status": 1}
TWO_REPLICAS: dict[str, object] = {
    "default_replication_factor": 2,
    "offsets_topic_replication_factor": 2,
    "transaction_state_log_replication_factor": 2,
    "transaction_state_log_min_isr": 1,
}
COMMAND_TIMEOUT_S = 120
NO_SUCH_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART


def require_kafka() -> None:
    require_zookeeper()
    try:
        jars(V3)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))


def api_versions(port: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with RawClient(port) as client:
        answer: ApiVersionsResponse = client.ask("ApiVersions", 4, request)
        return answer


def finalized(port: int) -> dict[str, int]:
    return {each.name: each.max_version_level for each in api_versions(port).finalized_features}


def supported(port: int) -> dict[str, tuple[int, int]]:
    return {each.name: (each.min_version, each.max_version) for each in api_versions(port).supported_features}


def wait_for_levels(brokers: Cluster, levels: dict[str, int]) -> None:
    for broker in brokers.running:
        wait_until(
            lambda b=broker: finalized(b.port) == levels,  # type: ignore[misc]
            lambda b=broker: f"broker {b.broker_id} has {finalized(b.port)}",
        )


def features(brokers: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", "-b", brokers.bootstrap, "features", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)


def done(brokers: Cluster, *arguments: str) -> Any:
    """The JSON that the command prints."""
    result = features(brokers, *arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def heartbeat(port: int, group: str = "g") -> tuple[int, int]:
    """The error codes of ConsumerGroupHeartbeat and ConsumerGroupDescribe."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=str(uuid4()),
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    with RawClient(port) as client:
        beat = client.ask("ConsumerGroupHeartbeat", 0, request).error_code
        described = client.ask("ConsumerGroupDescribe", 0, ConsumerGroupDescribeRequest(group_ids=[group]))
        return beat, described.groups[0].error_code


def read_by_new_protocol(brokers: Cluster, group: str, count: int) -> None:
    """Records of a topic by a member of librdkafka's, which stays until it has committed all."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(["orders"])
        deadline, found = Deadline(), 0
        while found < count:
            deadline.check(f"{found} of {count} records")
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                found += 1
        consumer.commit(asynchronous=False)
        with brokers.admin() as admin:
            assert admin.describe_groups([group])[group].type == "consumer"
    finally:
        consumer.close()


def commit_transactions(brokers: Cluster, transactional_id: str, count: int) -> list[int]:
    """The epochs of the producer after each of its transactions."""
    epochs = []
    with (
        brokers.admin() as admin,
        brokers.producer(transactional_id=transactional_id) as producer,
    ):
        for number in range(count):
            with producer.transaction():
                for partition in range(4):
                    producer.send("orders", b"%d" % number, partition=partition)
            described = admin.describe_transactions([transactional_id])[transactional_id]
            epochs.append(described.producer_epoch)
    return epochs


@pytest.fixture
def pair(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[Cluster]:
    with cluster(2, tmp_path, zookeeper, num_partitions=4, default_replication_factor=2) as brokers:
        # With its first topic a cluster settles its features.
        assert brokers.node("/feature") is None
        create_orders(brokers)
        yield brokers


def create_orders(brokers: Cluster) -> None:
    with brokers.admin() as admin:
        admin.create_topics(["orders"], partitions=4, replication_factor=2)
    brokers.wait_for_topic("orders", partitions=4, isr=2)


def test_a_cluster_of_our_brokers_has_the_latest_features(pair: Cluster) -> None:
    assert pair.node("/feature") == {
        "features": {name: {"max_version_level": level} for name, level in LATEST.items()},
        "version": 2,
        "status": 1,
    }
    assert pair.node("/brokers/ids/1")["features"] == REGISTERED
    wait_for_levels(pair, LATEST)
    for broker in pair:
        assert api_versions(broker.port).finalized_features_epoch == 0
        assert supported(broker.port) == SUPPORTED
    first, *later = commit_transactions(pair, "bank", 3)
    assert later == [first + 1, first + 2]
    # Each transaction has a record and a marker in every partition; markers are no records.
    read_by_new_protocol(pair, "readers", 12)
    assert done(pair, "describe") == [
        {
            "feature": name,
            "level": level,
            "min_version": 0,
            "max_version": level,
            "epoch": 0,
            "unsupported_by": [],
        }
        for name, level in LATEST.items()
    ]


def test_kafkas_own_tool_changes_levels(pair: Cluster) -> None:
    require_kafka()
    name = "org.apache.kafka.tools.FeatureCommand"
    server = ("--bootstrap-server", pair.bootstrap)
    told = run_tool(V3, name, *server, "downgrade", "--feature", "transaction.version=1")
    assert told == "transaction.version was downgraded to 1.\n"
    wait_for_levels(pair, {"group.version": 1, "transaction.version": 1})
    assert run_tool(V3, name, *server, "describe").splitlines()[1].split("\t") == [
        "Feature: transaction.version",
        "SupportedMinVersion: 0",
        "SupportedMaxVersion: 2",
        "FinalizedVersionLevel: 1",
        "Epoch: 1",
    ]


def test_kafka_does_not_join_a_cluster_with_features(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    require_kafka()
    with cluster(1, tmp_path, zookeeper) as brokers:
        with brokers.admin() as admin:
            admin.create_topics(["orders"])
        wait_for_levels(brokers, LATEST)
        kafka = KafkaBroker(KAFKA, tmp_path / "kafka", brokers.connect)
        kafka.start()
        try:
            code, output = kafka.wait_until_ended()
        finally:
            kafka.stop()
        assert code == 1, output
        assert "feature compatibility checks failed" in output
        assert brokers.broker_epoch(KAFKA) is None
        assert finalized(brokers[1].port) == LATEST


def test_kafka_joins_a_new_cluster_of_our_brokers(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """They may have started together: ours are ready, and one of them is the controller, before Kafka asks."""
    require_kafka()
    with cluster(1, tmp_path, zookeeper, **TWO_REPLICAS) as brokers:
        assert brokers.node("/feature") is None
        same = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
        kafka = KafkaBroker(KAFKA, tmp_path / "kafka", brokers.connect, same)
        kafka.start()
        try:
            kafka.wait_until_ready()
            brokers.wait_for_brokers(1, KAFKA)
            assert brokers.wait_for_controller() == 1
            wait_until(lambda: brokers.node("/feature") == EMPTY_NODE, lambda: brokers.node("/feature"))
            create_orders(brokers)
            wait_for_levels(brokers, {})
            assert finalized(kafka.port) == {}
            assert len(set(commit_transactions(brokers, "bank", 2))) == 1
        finally:
            kafka.kill()


def test_a_new_cluster_has_groups_of_the_new_protocol_at_once(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    """The first request of all is that of a member, which has the topic of the offsets created."""
    with cluster(2, tmp_path, zookeeper) as brokers:
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "group.id": "first",
                "group.protocol": "consumer",
            }
        )
        try:
            consumer.subscribe(["orders"])
            deadline = Deadline()
            with brokers.admin() as admin:
                while not admin.list_groups(types=["consumer"]):
                    deadline.check("a group of the new protocol")
                    message = consumer.poll(0.1)
                    assert message is None or message.error().code() == NO_SUCH_TOPIC, message.error()
        finally:
            consumer.close()
        assert brokers.node("/feature")["features"].keys() == LATEST.keys()


def test_from_kafka_to_our_brokers_and_back(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    require_kafka()
    with cluster(0, tmp_path, zookeeper) as brokers:
        # Kafka expects the chroot.
        assert brokers.tree.exists("/")
        kafka = KafkaBroker(KAFKA, tmp_path / "kafka", brokers.connect)
        kafka.start()
        try:
            kafka.wait_until_ready()
            for broker_id in (1, 2):
                brokers.add(broker_id, **TWO_REPLICAS).begin_start()
            for broker in brokers:
                broker.wait_until_ready()
            brokers.wait_for_brokers(1, 2, KAFKA)
            # The cluster is Kafka's: nothing is finalized, although our brokers could.
            assert brokers.node("/feature") == EMPTY_NODE
            assert brokers.node("/brokers/ids/1")["features"] == REGISTERED
            wait_for_levels(brokers, {})
            ours, theirs = api_versions(brokers[1].port), api_versions(kafka.port)
            assert ours.finalized_features_epoch == theirs.finalized_features_epoch == 0
            assert theirs.finalized_features == []
            refused = (UnsupportedVersion.code, UnsupportedVersion.code)
            assert heartbeat(brokers[1].port) == heartbeat(kafka.port) == refused
            assert [each["unsupported_by"] for each in done(brokers, "describe")] == [[KAFKA], [KAFKA]]
            result = features(brokers, "upgrade", "group.version=1")
            assert result.returncode == 1, result.stdout
            kafka.stop()
            brokers.wait_for_controller(other_than=KAFKA)
            brokers.wait_for_brokers(1, 2)
            assert brokers.node("/feature") == EMPTY_NODE
            _move_up_and_down(brokers)
            # With the features gone, Kafka is a member again.
            kafka.start()
            kafka.wait_until_ready()
            brokers.wait_for_brokers(1, 2, KAFKA)
        finally:
            kafka.stop()


def _move_up_and_down(brokers: Cluster) -> None:
    create_orders(brokers)
    # Version 1 of the protocol: the epoch of the producer stays.
    assert len(set(commit_transactions(brokers, "before", 2))) == 1
    assert done(brokers, "upgrade", "--dry-run") == [
        {"feature": name, "level": level} for name, level in LATEST.items()
    ]
    assert finalized(brokers[1].port) == {}
    done(brokers, "upgrade")
    wait_for_levels(brokers, LATEST)
    first, second = commit_transactions(brokers, "after", 2)
    assert second == first + 1
    with Consumer(
        bootstrap_servers=brokers.bootstrap, group_id="live", group_protocol="consumer"
    ) as consumer:
        consumer.subscribe(["orders"])
        deadline = Deadline()
        while not consumer.assignment():
            deadline.check("an assignment")
            consumer.poll(0.1)
        refused = features(brokers, "disable", "--all", "--yes")
        assert refused.returncode == 1
        assert "Groups of the consumer protocol have members: live." in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    with brokers.admin() as admin:
        wait_until(lambda: admin.describe_groups(["live"])["live"].state == "Empty")
    unconfirmed = features(brokers, "disable", "--all")
    assert (unconfirmed.returncode, "without confirmation" in unconfirmed.stderr) == (1, True)
    done(brokers, "downgrade", "transaction.version=1", "--yes")
    wait_for_levels(brokers, {"group.version": 1, "transaction.version": 1})
    done(brokers, "disable", "--all", "--yes")
    wait_for_levels(brokers, {})
    assert brokers.node("/feature") == EMPTY_NODE
    assert heartbeat(brokers[1].port)[0] == UnsupportedVersion.code
    # The group has kept its offsets, and the classic protocol takes it over.
    with Consumer(bootstrap_servers=brokers.bootstrap, group_id="live", group_protocol="classic") as consumer:
        consumer.subscribe(["orders"])
        deadline = Deadline()
        while not consumer.assignment():
            deadline.check("an assignment")
            consumer.poll(0.1)


def test_a_level_that_is_not_known_stops_the_broker(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(1, tmp_path, zookeeper) as brokers:
        broker = brokers[1]
        node = {"features": {"share.version": {"max_version_level": 1}}, "version": 2, "status": 1}
        brokers.tree.create("/feature", json.dumps(node).encode())
        assert broker.wait() == 1
        line = "the cluster has finalized share.version at level 1, which this broker does not support"
        assert line in broker.log_text()
        assert "Traceback" not in broker.log_text()
        broker.begin_start()
        assert broker.wait() == 1
        log = broker.log_text()
        assert line in log.splitlines()[-1]
        assert "Traceback" not in log
        assert brokers.broker_epoch(1) is None
        brokers.tree.set("/feature", json.dumps(EMPTY_NODE).encode())
        broker.start()
        assert finalized(broker.port) == {}
        assert heartbeat(broker.port)[0] != NONE
