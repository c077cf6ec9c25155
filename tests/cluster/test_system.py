"""Ideas of Apache Kafka's system tests (ducktape) on real brokers; docs/ARCHITECTURE.md says where the others are.

`replica_failure`, `reassign_partitions`, `throttling`, `fetch_from_follower` and `log_dir_failure`, each under load.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer as ConfluentConsumer

from barnabas.client.admin.results import NewTopic
from tests.cluster.clusters import Cluster, cluster
from tests.cluster.loads import OwnLoad, read_topic
from tests.faults.test_disks import may_mount
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

BROKERS: Final = 3
PARTITIONS: Final = 3
IN_TURN: Final = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
COMMAND_TIMEOUT_S: Final = 120
FETCH_BYTES: Final = 1 << 16
SETTINGS: Final = {
    "min_insync_replicas": 2,
    # Leaders notice first that a broker hangs.
    "replica_lag_time_max_ms": 1_000,
    "zookeeper_session_timeout_ms": 10_000,
    # A fetch that has begun is not throttled: small ones, of small batches, keep to a rate.
    "replica_fetch_max_bytes": FETCH_BYTES,
    "replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
# How much is moved, and how fast. As in Kafka a rate counts over 11 s: as much comes at once, and then nothing until
# those seconds are over. All of it takes a third burst, without a throttle a part of a second.
MOVED_BYTES: Final = 8 << 20
THROTTLE_BYTES_A_SECOND: Final = 300_000
BURST_S: Final = 11
BURST_BYTES: Final = THROTTLE_BYTES_A_SECOND * BURST_S
# More than that is copied by fetches that have begun, and in the second in which a burst ends.
BURST_BYTES_MAX: Final = BURST_BYTES + THROTTLE_BYTES_A_SECOND + 2 * FETCH_BYTES
HELD_BACK_S: Final = 2


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer) -> Iterator[Cluster]:
    """Each broker is in a rack of its own."""
    folder = tmp_path_factory.mktemp("system")
    with cluster(0, folder, zookeeper) as running:
        for broker_id in range(1, BROKERS + 1):
            rack = f"rack-{broker_id}"
            running.add(
                broker_id, offsets_topic_replication_factor=3, broker_rack=rack, **SETTINGS
            ).begin_start()
        for broker in running:
            broker.wait_until_ready()
        running.wait_for_brokers()
        yield running
        for broker in running:
            assert "Traceback" not in broker.log_file.read_text()


def create(brokers: Cluster, topic: str, assignment: dict[int, list[int]] = IN_TURN, **settings: str) -> None:
    with brokers.admin() as admin:
        admin.create_topics([NewTopic(name=topic, assignment=assignment, configs=settings)])
    brokers.wait_for_topic(topic, partitions=len(assignment), isr=len(assignment[0]))


def test_replica_failure(brokers: Cluster) -> None:
    """A follower hangs for longer than it may lag: producers go on without it, and it comes back."""
    # A controller that hangs would hold up the change of the in-sync replicas.
    victim = 1 + brokers.wait_for_controller() % BROKERS
    create(brokers, "replica-failure")
    [partition] = [each for each, replicas in IN_TURN.items() if replicas[-1] == victim]
    path = f"/brokers/topics/replica-failure/partitions/{partition}/state"
    with OwnLoad(brokers, "replica-failure", PARTITIONS) as load:
        load.wait_for_more()
        epoch = brokers.wait_for_registration(victim)
        brokers[victim].pause()
        try:
            wait_until(lambda: victim not in brokers.node(path)["isr"], lambda: brokers.node(path))
        finally:
            brokers[victim].resume()
        # Its session has not ended: it was the leaders that went on without it.
        assert brokers.wait_for_registration(victim) == epoch
        brokers.wait_for_topic("replica-failure", partitions=PARTITIONS, isr=BROKERS)
        load.wait_for_more()
    load.check(read_topic(brokers, "replica-failure", PARTITIONS))


def test_reassign_partitions_with_throttling_while_brokers_bounce(brokers: Cluster, tmp_path: Path) -> None:
    create(brokers, "moved", {0: [1, 2], 1: [1, 2]})
    with brokers.producer(acks="all") as producer:
        for _ in range(MOVED_BYTES // FETCH_BYTES):
            producer.send("moved", bytes(FETCH_BYTES), partition=1)
            producer.flush()
    plan = tmp_path / "plan.json"
    moves = [{"topic": "moved", "partition": each, "replicas": [3, 2]} for each in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    command = [sys.executable, "-m", "barnabas", "-b", brokers.bootstrap, "reassign", "run", str(plan)]
    copied = brokers[3].directory / "moved-1"
    begun_s = time.monotonic()
    with (
        OwnLoad(brokers, "moved", 1) as load,
        subprocess.Popen(
            [*command, "--throttle", str(THROTTLE_BYTES_A_SECOND), "--yes"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as moving,
        brokers.admin() as admin,
    ):
        wait_until(
            lambda: size_bytes(copied) >= BURST_BYTES // 2, lambda: f"{size_bytes(copied)} bytes copied"
        )
        held_back_until_s = time.monotonic() + HELD_BACK_S
        while time.monotonic() < held_back_until_s:
            load.wait_for_more()
        copied_bytes = size_bytes(copied)
        assert copied_bytes <= BURST_BYTES_MAX * (1 + (time.monotonic() - begun_s) // BURST_S)
        assert admin.list_reassignments()
        # The broker that gets the replicas, in order, and the controller, by force.
        brokers[3].restart()
        load.wait_for_more()
        controller = brokers.wait_for_controller()
        brokers[controller].kill()
        brokers[controller].start()
        told, _ = moving.communicate(timeout=COMMAND_TIMEOUT_S)
        assert moving.returncode == 0, told
        wait_until(lambda: not admin.list_reassignments())
    load.check(read_topic(brokers, "moved", 1))
    brokers.wait_for_topic("moved", partitions=2, isr=2)
    for partition in (0, 1):
        found = brokers[2].partition("moved", partition)
        assert found is not None
        assert list(found.replica_nodes) == [3, 2]


def size_bytes(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.glob("*.log"))


def test_fetch_from_follower(brokers: Cluster) -> None:
    """A consumer reads from the replica in its rack, and from the leader when that replica is gone."""
    create(brokers, "near", {0: [1, 2, 3]})
    told: list[dict[str, Any]] = []
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": "near",
            "client.rack": "rack-3",
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": 1_000,
            "stats_cb": lambda text: told.append(json.loads(text)),
        }
    )

    def read_from() -> int:
        """The broker that the consumer fetches from now."""
        consumer.consume(100, 0.1)
        return int(told[-1]["topics"]["near"]["partitions"]["0"]["broker"]) if told else -1

    try:
        consumer.subscribe(["near"])
        with OwnLoad(brokers, "near", 1) as load:
            load.wait_for_more()
            wait_until(
                lambda: has_partition(told) and read_from() == 3, poll_s=0, meanwhile=read_some(consumer)
            )
            assert brokers[3].stop() == 0
            wait_until(lambda: read_from() == 1, meanwhile=read_some(consumer))
            brokers[3].start()
            brokers.wait_for_topic("near", isr=BROKERS)
    finally:
        consumer.close()


def has_partition(told: list[dict[str, Any]]) -> bool:
    return bool(told) and "0" in told[-1]["topics"].get("near", {"partitions": {}})["partitions"]


def read_some(consumer: ConfluentConsumer) -> Any:
    return lambda: consumer.consume(100, 0.1)


def test_log_dir_failure(brokers: Cluster, tmp_path: Path) -> None:
    """A disk of a leader is full: others lead what lies there, and the broker goes on with its other disk."""
    why_not = may_mount()
    if why_not is not None:
        pytest.skip(f"a small tmpfs is needed for a full disk: {why_not}")
    small = tmp_path / "small"
    small.mkdir()
    broker = brokers.add(4, **SETTINGS)
    broker.overrides["log.dirs"] = f"{broker.directory},{small}"
    # The disk is there for this broker alone, and ends with it.
    mount = f'mount -t tmpfs -o size=16m tmpfs "{small}" && exec "$@"'
    broker.prefix = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    broker.start()
    brokers.wait_for_brokers()
    create(brokers, "disks", {0: [4, 2, 3], 1: [4, 2, 3]})
    [kept] = [each for each in (0, 1) if (broker.directory / f"disks-{each}").is_dir()]
    lost = 1 - kept
    with OwnLoad(brokers, "disks", 2) as load:
        load.wait_for_more()
        # It ends with an error, when the disk is full.
        filling = ["dd", "if=/dev/zero", f"of={small}/full", "bs=64K"]
        filled = subprocess.run(
            ["nsenter", "--target", str(broker.pid), "--mount", *filling],
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        assert b"No space left" in filled.stderr, filled.stderr
        brokers.wait_for_leader("disks", lost, other_than=4)
        load.wait_for_more()
        assert brokers.wait_for_leader("disks", kept) == 4
    load.check(read_topic(brokers, "disks", 2))
    path = f"/brokers/topics/disks/partitions/{lost}/state"
    wait_until(lambda: sorted(brokers.node(path)["isr"]) == [2, 3], lambda: brokers.node(path))
