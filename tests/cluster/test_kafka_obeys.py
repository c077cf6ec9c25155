"""Brokers of Apache Kafka 3.9.1 obey our controller: what it decides is seen on their disks and in their answers.

Broker 1 is ours and the controller. Brokers 2 and 3 are Kafka's and have all replicas.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.admin.results import ElectionType, NewTopic
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.model import TopicPartition
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.broker.raw_client import RawClient
from tests.cluster.clusters import METADATA_VERSION, Cluster, end_session
from tests.peers.kafka_cluster import KafkaBroker
from tests.peers.kafka_peer import V3, PeerUnavailable, jars
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
OURS, TWO, THREE = 1, 2, 3
T0, T1, T2 = (TopicPartition("t", index) for index in range(3))
RECORDS = 100

# Leader, replicas, in-sync replicas.
Place = tuple[int, list[int], list[int]]


class Mixed:
    """The cluster, as its three brokers see it."""

    def __init__(self, brokers: Cluster, kafka: dict[int, KafkaBroker], folder: Path) -> None:
        self.brokers = brokers
        self.kafka = kafka
        self._folder = folder

    def directories(self, broker_id: int) -> list[Path]:
        return [self._folder / f"kafka-{broker_id}-{each}" for each in "ab"]

    def logs(self, broker_id: int, topic: str) -> set[int]:
        """The partitions that a broker has a log of, and does not delete."""
        found = set()
        for directory in self.directories(broker_id):
            for each in directory.iterdir() if directory.is_dir() else ():
                match = re.fullmatch(rf"{topic}-(\d+)", each.name)
                if match:
                    found.add(int(match[1]))
        return found

    def place(self, broker_id: int, at: TopicPartition) -> Place | None:
        """What a broker of Kafka's answers about a partition."""
        topic = MetadataRequestTopic(name=at.topic)
        request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        with RawClient(self.kafka[broker_id].port) as client:
            answer = client.ask("Metadata", METADATA_VERSION, request)
        for found in answer.topics:
            for each in found.partitions:
                if each.partition_index == at.partition:
                    return each.leader_id, list(each.replica_nodes), sorted(each.isr_nodes)
        return None

    def wait_for(self, at: TopicPartition, place: Place | None, *broker_ids: int) -> None:
        """Until these brokers of Kafka's, or both, answer this."""
        for broker_id in broker_ids or self.kafka:
            wait_until(
                lambda b=broker_id: self.place(b, at) == place,  # type: ignore[misc]
                lambda b=broker_id: f"broker {b} answers {self.place(b, at)}, not {place}",
            )

    def use(self, partition: TopicPartition, *broker_ids: int) -> None:
        """Writes with acks=all, and reads all of it."""
        bootstrap = ",".join(f"127.0.0.1:{self.kafka[each].port}" for each in broker_ids or self.kafka)
        with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
            for number in range(RECORDS):
                producer.send(partition.topic, b"%d" % number, partition=partition.partition)
            producer.flush()
        with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            found: set[bytes | None] = set()
            while len(found) < RECORDS:
                found |= {record.value for record in consumer.poll(1_000)}


@contextlib.contextmanager
def mixed(folder: Path, zookeeper: ZooKeeperServer, level: str) -> Iterator[Mixed]:
    """Kafka's brokers are there first, and one of them is the controller until ours takes over."""
    try:
        jars(V3)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    brokers = Cluster(zookeeper, folder)
    brokers.tree.ensure_path("/")
    kafka: dict[int, KafkaBroker] = {}
    cluster = Mixed(brokers, kafka, folder)
    for broker_id in (TWO, THREE):
        settings = {
            "inter.broker.protocol.version": level,
            "log.dirs": ",".join(map(str, cluster.directories(broker_id))),
            "replica.high.watermark.checkpoint.interval.ms": "500",
            "file.delete.delay.ms": "0",
            # A broker that is paused keeps its session.
            "zookeeper.session.timeout.ms": "30000",
            "controlled.shutdown.retry.backoff.ms": "500",
        }
        kafka[broker_id] = KafkaBroker(broker_id, folder / f"kafka-{broker_id}", brokers.connect, settings)
    try:
        for each in kafka.values():
            each.start()
        for each in kafka.values():
            each.wait_until_ready()
        ours = brokers.add(OURS, inter_broker_protocol_version=level, auto_leader_rebalance_enable=False)
        ours.start()
        wait_until(lambda: len(ours.metadata([]).brokers) == 3, lambda: ours.metadata([]))
        yield cluster
        assert "Traceback" not in ours.log_text()
    except BaseException:
        brokers.print_logs()
        raise
    finally:
        for each in kafka.values():
            each.kill()
        brokers.close()


def take_over(cluster: Mixed) -> None:
    """Our broker becomes the controller: Kafka's do not take part in the election."""
    tree = cluster.brokers.tree
    for each in cluster.kafka.values():
        each.pause()
    try:
        tree.delete("/controller")
        wait_until(lambda: tree.exists("/controller"), "our broker is the controller")
    finally:
        for each in cluster.kafka.values():
            each.resume()
    assert cluster.brokers.node("/controller")["brokerid"] == OURS
    wait_until(lambda: cluster.brokers[OURS].metadata([]).controller_id == OURS)


def recovery_state(cluster: Mixed, at: TopicPartition) -> int:
    node = cluster.brokers.node(f"/brokers/topics/{at.topic}/partitions/{at.partition}/state")
    return int(node.get("leader_recovery_state", 0))


def create(cluster: Mixed, topic: str, assignment: dict[int, list[int]]) -> None:
    with cluster.brokers.admin() as admin:
        admin.create_topics([NewTopic(name=topic, assignment=assignment)])


def levels(usual: str, *of_soak: str) -> list[Any]:
    """The protocol level of the usual run, and those of the soak."""
    in_soak = pytest.mark.skipif(not IS_SOAK, reason="takes a minute, and has a sample: see `make soak`")
    return [usual, *(pytest.param(each, marks=in_soak) for each in of_soak)]


@pytest.mark.parametrize("level", levels("3.9", "3.4", "2.8"))
def test_growth_moves_bounces_and_a_failed_disk(
    tmp_path: Path, zookeeper: ZooKeeperServer, level: str
) -> None:
    with mixed(tmp_path, zookeeper, level) as cluster:
        # Takeover: a topic of the controller before.
        create(cluster, "t", {0: [TWO, THREE], 1: [THREE, TWO]})
        cluster.wait_for(T0, (TWO, [TWO, THREE], [TWO, THREE]))
        take_over(cluster)
        cluster.use(T0)
        with cluster.brokers.admin() as admin:
            # More partitions.
            admin.create_partitions({"t": 3}, assignments={"t": [[THREE, TWO]]})
            cluster.wait_for(T2, (THREE, [THREE, TWO], [TWO, THREE]))
            assert cluster.logs(TWO, "t") == cluster.logs(THREE, "t") == {0, 1, 2}
            # A reassignment: the removed replica leads, and its log goes.
            admin.alter_reassignments({T2: [TWO]})
            cluster.wait_for(T2, (TWO, [TWO], [TWO]))
            wait_until(lambda: cluster.logs(THREE, "t") == {0, 1}, lambda: cluster.logs(THREE, "t"))
            # Cancelling: the broker that is to be added does nothing meanwhile.
            cluster.kafka[THREE].pause()
            admin.alter_reassignments({T2: [TWO, THREE]})
            cluster.wait_for(T2, (TWO, [TWO, THREE], [TWO]), TWO)
            admin.alter_reassignments({T2: None})
            cluster.kafka[THREE].resume()
            cluster.wait_for(T2, (TWO, [TWO], [TWO]))
            wait_until(lambda: cluster.logs(THREE, "t") == {0, 1}, lambda: cluster.logs(THREE, "t"))
            # A bounce: the session of a leader ends, and it registers again.
            end_session(cluster.brokers.tree, zookeeper.address, f"/brokers/ids/{TWO}")
            cluster.wait_for(T0, (THREE, [TWO, THREE], [TWO, THREE]))
            # A preferred election.
            admin.elect_leaders([T0], election=ElectionType.PREFERRED)
            cluster.wait_for(T0, (TWO, [TWO, THREE], [TWO, THREE]))
            cluster.use(T0)
            fail_directory(cluster)
            # A controlled shutdown, and the broker comes back with a new disk.
            cluster.kafka[THREE].stop()
            cluster.wait_for(T1, (TWO, [THREE, TWO], [TWO]), TWO)
            for directory in cluster.directories(THREE):
                if directory.is_file():
                    directory.unlink()
            cluster.kafka[THREE].start()
            cluster.kafka[THREE].wait_until_ready()
            for at, replicas in ((T0, [TWO, THREE]), (T1, [THREE, TWO])):
                cluster.wait_for(at, (TWO, replicas, [TWO, THREE]))
            cluster.use(T1)
            # Deletion.
            admin.delete_topics(["t"])
            for broker_id in (TWO, THREE):
                cluster.wait_for(T0, None, broker_id)
                wait_until(lambda b=broker_id: not cluster.logs(b, "t"), lambda: "logs are deleted")  # type: ignore[misc]


def fail_directory(cluster: Mixed) -> None:
    """The disk of a leader fails: another one leads, and the broker goes on with its other disk."""
    failing = next(each for each in cluster.directories(THREE) if (each / "t-1").is_dir())
    shutil.rmtree(failing)
    failing.write_text("not a directory")
    cluster.wait_for(T1, (TWO, [THREE, TWO], [TWO]))
    cluster.use(T1, TWO)


@pytest.mark.parametrize("level", levels("2.8", "3.9", "3.4"))
def test_a_crash_and_an_unclean_election(tmp_path: Path, zookeeper: ZooKeeperServer, level: str) -> None:
    with mixed(tmp_path, zookeeper, level) as cluster:
        take_over(cluster)
        create(cluster, "t", {0: [TWO, THREE]})
        cluster.wait_for(T0, (TWO, [TWO, THREE], [TWO, THREE]))
        cluster.use(T0)
        # A crash: only the leader is in sync, and dies.
        cluster.kafka[THREE].stop()
        cluster.wait_for(T0, (TWO, [TWO, THREE], [TWO]), TWO)
        cluster.kafka[TWO].kill()
        end_session(cluster.brokers.tree, zookeeper.address, f"/brokers/ids/{TWO}")
        cluster.kafka[THREE].start()
        cluster.kafka[THREE].wait_until_ready()
        cluster.wait_for(T0, (-1, [TWO, THREE], [TWO]), THREE)
        with cluster.brokers.admin() as admin:
            # An unclean election. At level 2.8 leaders have nothing to recover. Later ones say that they have done so
            # with their next change of the in-sync replicas.
            admin.elect_leaders([T0], election=ElectionType.UNCLEAN)
            cluster.wait_for(T0, (THREE, [TWO, THREE], [THREE]), THREE)
            cluster.use(T0, THREE)
            assert recovery_state(cluster, T0) == (0 if level == "2.8" else 1)
            cluster.kafka[TWO].start()
            cluster.kafka[TWO].wait_until_ready()
            cluster.wait_for(T0, (THREE, [TWO, THREE], [TWO, THREE]))
            assert recovery_state(cluster, T0) == 0
            admin.alter_reassignments({T0: [TWO]})
            cluster.wait_for(T0, (TWO, [TWO], [TWO]))
            wait_until(lambda: not cluster.logs(THREE, "t"), lambda: cluster.logs(THREE, "t"))
            admin.delete_topics(["t"])
            cluster.wait_for(T0, None)
