"""Clusters of three brokers for the benchmarks, on one ZooKeeper: Apache Kafka 3.9, and Barnabas."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kazoo.client import KazooClient

from barnabas.errors import NONE, error_for_code
from barnabas.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from bench import load
from bench.kafka import HEAP, JAVA_OPTIONS, SETTINGS, MeasuredBroker
from tests.peers.kafka_peer import V3, jars

BROKERS: Final = 3
SESSION_TIMEOUT_MS: Final = 6_000
# These bound a wait on a busy machine; they are not expected times.
WAIT_S: Final = 240.0
POLL_S: Final = 0.002

CLUSTER_SETTINGS: Final = {
    **SETTINGS,
    "default.replication.factor": str(BROKERS),
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "zookeeper.connection.timeout.ms": "60000",
    "auto.leader.rebalance.enable": "false",
}


class ZooKeeperKafka(MeasuredBroker):
    """Apache Kafka 3.9 with its metadata in ZooKeeper."""

    def command(self) -> list[str]:
        properties = {
            **self.overrides,
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.directory),
        }
        path = self.directory.with_name(f"{self.directory.name}.properties")
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return ["java", *HEAP, *JAVA_OPTIONS, "-cp", f"{jars(V3)}/*", "kafka.Kafka", str(path)]


class MeasuredCluster:
    """Three brokers with ids from 0 on, and a client of their ZooKeeper that sees when nodes go."""

    def __init__(
        self,
        make: Callable[[Path, Mapping[str, str]], MeasuredBroker],
        folder: Path,
        zookeeper: str,
    ) -> None:
        self._chroot = f"/{folder.name}"
        self.brokers = [
            make(
                folder / str(number),
                {**CLUSTER_SETTINGS, "broker.id": str(number), "zookeeper.connect": zookeeper + self._chroot},
            )
            for number in range(BROKERS)
        ]
        folder.mkdir()
        self._zookeeper = KazooClient(zookeeper)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._zookeeper.start()
        self._open.callback(self._zookeeper.close)
        self._open.callback(self._zookeeper.stop)
        for broker in self.brokers:
            self._open.enter_context(broker)
        self.wait_for_brokers()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def controller_id(self) -> int:
        data, _ = self._zookeeper.get(f"{self._chroot}/controller")
        return int(json.loads(data)["brokerid"])

    @property
    def cpu_seconds(self) -> float:
        return sum(load.cpu_seconds(broker.pid) for broker in self.brokers)

    def others(self, *without: int) -> list[int]:
        return [number for number in range(BROKERS) if number not in without]

    def metadata(self, broker_id: int, topic: str | None = None) -> Any:
        topics = [] if topic is None else [MetadataRequestTopic(name=topic)]
        with load.connect(self.brokers[broker_id].port) as connected:
            return load.ask(connected, "Metadata", 4, MetadataRequest(topics=topics))

    def partitions(self, broker_id: int, topic: str) -> list[Any]:
        [found] = self.metadata(broker_id, topic).topics
        return list(found.partitions)

    def create_topic(self, name: str, replicas: Sequence[Sequence[int]]) -> None:
        """With these replicas for each partition. Returns when all replicas are in sync."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in enumerate(replicas)
        ]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        with load.connect(self.brokers[self.controller_id].port) as connected:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
            [answer] = load.ask(connected, "CreateTopics", 5, request).topics
        assert answer.error_code == 0, answer
        self.wait_until_in_sync(name, len(replicas))

    def delete_topic(self, name: str) -> None:
        with load.connect(self.brokers[self.controller_id].port) as connected:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000)
            [answer] = load.ask(connected, "DeleteTopics", 4, request).responses
        assert answer.error_code == 0, answer

    def wait_until_in_sync(self, topic: str, count: int) -> None:
        """On all brokers."""

        def is_in_sync(broker_id: int) -> bool:
            found = self.partitions(broker_id, topic)
            return len(found) == count and all(
                each.error_code == 0 and len(each.isr_nodes) == len(each.replica_nodes) for each in found
            )

        wait_until(lambda: all(map(is_in_sync, range(BROKERS))), f"{topic} is in sync", poll_s=0.05)

    def wait_for_brokers(self) -> None:
        def knows_all(broker_id: int) -> bool:
            answer = self.metadata(broker_id)
            return len(answer.brokers) == BROKERS and answer.controller_id >= 0

        wait_until(lambda: all(map(knows_all, range(BROKERS))), "the brokers know each other", poll_s=0.05)

    def wait_until_gone(self, path: str) -> None:
        """Returns as soon as ZooKeeper reports that a node is gone."""
        gone = self._zookeeper.handler.event_object()
        if self._zookeeper.exists(self._chroot + path, watch=lambda event: gone.set()) is not None:
            gone.wait(WAIT_S)
            assert gone.is_set(), f"{path} is still there after {WAIT_S} s"


def wait_until(is_so: Callable[[], bool], what: str, *, poll_s: float = POLL_S) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, f"not after {WAIT_S:g} s: {what}"
        time.sleep(poll_s)


class SteadyProducer:
    """Sends one small batch after the other with acks=all, and finds the leader again when it has moved."""

    def __init__(self, cluster: MeasuredCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._frame = load.produce_frame(topic, load.batch_of(1_024), acks=-1)
        self._buffer = bytearray(1 << 16)
        # When batches were confirmed, and by whom the last one.
        self.confirmed_s: list[float] = []
        self.leader = -1
        # Errors that a client would show to its user: those that Kafka's clients do not retry.
        self.errors: list[int] = []

    def run_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                leader = self._find_leader()
                with load.connect(self._cluster.brokers[leader].port) as connected:
                    connected.settimeout(WAIT_S)
                    while not is_over():
                        connected.sendall(self._frame)
                        error_code = load.produce_error(load.read_frame(connected, self._buffer))
                        if error_code != NONE:
                            if not error_for_code(error_code).retriable:
                                self.errors.append(error_code)
                            break
                        self.confirmed_s.append(time.perf_counter())
                        self.leader = leader
            except OSError:
                # The leader is gone.
                pass
            # It may be another one now: like clients, look again soon.
            time.sleep(POLL_S)

    def longest_gap_s(self) -> float:
        pairs = zip(self.confirmed_s, self.confirmed_s[1:], strict=False)
        return max(later - earlier for earlier, later in pairs)

    def _find_leader(self) -> int:
        for broker_id in range(BROKERS):
            try:
                [partition] = self._cluster.partitions(broker_id, self._topic)
            except (OSError, ValueError):
                continue
            if partition.leader_id >= 0:
                return int(partition.leader_id)
        raise ConnectionError("no broker knows a leader")
