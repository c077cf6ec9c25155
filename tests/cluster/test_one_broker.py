"""One broker on a real ZooKeeper: what it writes there, restarts, lost sessions, and an ensemble that is gone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from barnabas.client.admin.results import ConfigResource, ResourceType
from barnabas.errors import KafkaError
from barnabas.records import validate
from tests.cluster.clusters import Cluster, cluster
from tests.peers import zookeeper_peer
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

TOPIC = "orders"
LOST = "The connection to ZooKeeper is lost"
IS_COMPILED = not (validate.__file__ or "").endswith(".py")


def produce(brokers: Cluster, *values: bytes) -> None:
    with brokers.producer() as producer:
        for value in values:
            producer.send(TOPIC, value)
        producer.flush()


def consume(brokers: Cluster, count: int) -> list[bytes | None]:
    with brokers.consumer() as consumer:
        consumer.assign([(TOPIC, 0)])
        found: list[bytes | None] = []
        wait_until(
            lambda: len(found) >= count,
            lambda: f"{count} records: {found}",
            meanwhile=lambda: found.extend(record.value for record in consumer.poll(500)),
        )
        return found


def create_topic(brokers: Cluster, name: str = TOPIC) -> None:
    with brokers.admin() as admin:
        admin.create_topics([name])
    brokers.wait_for_topic(name)


def retention_ms(brokers: Cluster, name: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, name)
    with brokers.admin() as admin:
        return admin.describe_configs(resource)[resource]["retention.ms"].value


def check_works(brokers: Cluster, name: str) -> None:
    """The broker is the controller, creates a topic, changes settings, and has the records from before."""
    create_topic(brokers, name)
    with brokers.admin() as admin:
        admin.alter_configs({ConfigResource(ResourceType.TOPIC, name): {"retention.ms": "12345"}})
    assert retention_ms(brokers, name) == "12345"
    produce(brokers, name.encode())


def test_a_broker_registers_as_kafka_does_and_keeps_its_records(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with cluster(1, tmp_path, zookeeper, broker_rack="a") as brokers:
        registration = brokers.node("/brokers/ids/1")
        assert registration["version"] == 5
        assert registration["endpoints"] == [f"PLAINTEXT://{brokers[1].address}"]
        assert registration["rack"] == "a"
        assert registration["features"] == {
            "group.version": {"min_version": 0, "max_version": 1},
            "transaction.version": {"min_version": 0, "max_version": 2},
        }
        stat = brokers.tree.exists("/brokers/ids/1")
        assert (stat.version, brokers.tree.exists("/consumers") is not None) == (1, True)
        assert brokers.node("/controller")["brokerid"] == 1
        cluster_id = brokers.node("/cluster/id")["id"]

        create_topic(brokers)
        produce(brokers, b"1", b"2")
        before = brokers.wait_for_registration(1)
        brokers[1].restart()
        assert brokers.wait_for_registration(1, other_than=before) > before
        assert f"cluster {cluster_id}" in brokers[1].log_text()
        produce(brokers, b"3")
        assert consume(brokers, 3) == [b"1", b"2", b"3"]
        assert brokers[1].stop() == 0
        assert brokers.broker_epoch(1) is None


def test_a_session_that_expires_is_followed_by_another(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(1, tmp_path, zookeeper) as brokers:
        create_topic(brokers)
        produce(brokers, b"before")
        # A tool has left a node that is no topic: the next controllers name it, and go on.
        brokers.tree.create("/brokers/topics/bad", b"")
        epoch = brokers.wait_for_registration(1)
        for number in (1, 2):
            brokers.expire_session(1)
            epoch = brokers.wait_for_registration(1, other_than=epoch)
            brokers[1].wait_for_line(f"the controller in epoch {number + 1}", 60)
            check_works(brokers, f"later-{number}")
        assert consume(brokers, 3) == [b"before", b"later-1", b"later-2"]
        assert "Topic bad is not served: /brokers/topics/bad: no JSON" in brokers[1].log_text()
        assert "Traceback" not in brokers[1].log_text()
        assert brokers[1].stop() == 0


def test_a_broker_that_is_paused_for_longer_than_its_session(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    with cluster(1, tmp_path, zookeeper, zookeeper_session_timeout_ms=1_500) as brokers:
        create_topic(brokers)
        epoch = brokers.wait_for_registration(1)
        # Settings change while the broker hears nothing.
        brokers[1].pause()
        wait_until(lambda: brokers.broker_epoch(1) is None)
        brokers.tree.set(
            f"/config/topics/{TOPIC}",
            b'{"version":1,"config":{"retention.ms":"777","cleanup.policy":"compact"}}',
        )
        brokers[1].resume()
        brokers.wait_for_registration(1, other_than=epoch)
        wait_until(lambda: retention_ms(brokers, TOPIC) == "777")
        brokers.wait_for_controller()
        check_works(brokers, "later")


def test_a_broker_serves_while_zookeeper_is_gone(tmp_path: Path) -> None:
    with cluster(1, tmp_path, request_timeout_ms=5_000) as brokers:
        create_topic(brokers)
        # The first producer makes the broker get a block of producer ids.
        produce(brokers, b"1")
        epoch = brokers.wait_for_registration(1)
        brokers.zookeeper.stop()
        brokers[1].wait_for_line(LOST, 60)
        produce(brokers, b"2")
        assert consume(brokers, 2) == [b"1", b"2"]
        # Away for longer than the session: it lasts all the same, since nobody was there to end it.
        time.sleep(8)
        produce(brokers, b"3")
        brokers.zookeeper.start()
        brokers.zookeeper.wait_until_ready()
        # A connection to a ZooKeeper that listens and does not serve yet may never be answered: then the session ends.
        back, again = "The connection to ZooKeeper is back", "Broker 1 is registered again"
        wait_until(lambda: back in brokers[1].log_text() or again in brokers[1].log_text())
        assert (brokers.wait_for_registration(1) == epoch) == (again not in brokers[1].log_text())
        check_works(brokers, "later")
        assert consume(brokers, 4) == [b"1", b"2", b"3", b"later"]
        brokers.zookeeper.stop()
        wait_until(lambda: brokers[1].log_text().count(LOST) == 2)
        # Nothing waits for ZooKeeper at the end.
        with brokers.admin() as admin, pytest.raises(KafkaError):
            admin.create_topics(["never"], timeout_ms=2_000)
        assert brokers[1].stop() == 0
        assert "Traceback" not in brokers[1].log_text()


def test_a_broker_waits_for_the_end_of_its_last_session(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(1, tmp_path, zookeeper) as brokers:
        registration, _ = brokers.tree.get("/brokers/ids/1")
        assert brokers[1].stop() == 0
        # A crash leaves the registration for a while.
        brokers.tree.create("/brokers/ids/1", registration, ephemeral=True)
        epoch = brokers.wait_for_registration(1)
        brokers[1].begin_start()
        brokers[1].wait_for_line("Broker 1 is still registered by its last run", 60)
        brokers.tree.delete("/brokers/ids/1")
        brokers[1].wait_until_ready()
        assert brokers.wait_for_registration(1) > epoch


def test_a_killed_broker_comes_back(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(1, tmp_path, zookeeper, zookeeper_session_timeout_ms=3_000) as brokers:
        create_topic(brokers)
        produce(brokers, b"kept")
        epoch = brokers.wait_for_registration(1)
        brokers[1].kill()
        brokers[1].start()
        assert brokers.wait_for_registration(1) > epoch
        brokers.wait_for_topic(TOPIC)
        assert consume(brokers, 1) == [b"kept"]


def test_generated_ids_count_up(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(0, tmp_path, zookeeper) as brokers:
        for number in (1, 2):
            broker = brokers.add(number, broker_id=-1)
            broker.start()
            assert f"broker {1000 + number} of cluster" in broker.log_text()
            broker.restart()
            assert f"broker {1000 + number} of cluster" in broker.log_text()
        assert sorted(brokers.tree.get_children("/brokers/ids")) == ["1001", "1002"]


def test_small_and_soon_there(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """Processor time, since the machine may be busy. `make bench ARGS=cluster` has the time on the clock."""
    with cluster(1, tmp_path, zookeeper) as brokers:
        seconds = min(restart_s(brokers) for _ in range(3))
        megabytes = brokers[1].rss_bytes() / 1e6
        print(f"registered and ready after {seconds} s of processor time, {megabytes:.0f} MB")
        assert seconds < (0.6 if IS_COMPILED else 1.2)
        assert megabytes < 60


def restart_s(brokers: Cluster) -> float:
    """The processor time that a broker needs until it is registered and ready."""
    brokers[1].restart()
    return brokers[1].cpu_seconds()


def test_the_newest_zookeeper(tmp_path: Path) -> None:
    starting = zookeeper_peer.zookeeper(zookeeper_peer.V3_9, tmp_path / "zookeeper")
    with starting as server, cluster(1, tmp_path, server) as brokers:
        create_topic(brokers)
        check_works(brokers, "later")
