"""A cluster for a test: several brokers on a ZooKeeper, each a process of its own.

    with barnabas.testing.Cluster(brokers=3, topics={"orders": 6}) as cluster:
        producer = cluster.producer(acks="all")
        cluster.leader_of("orders", 0).kill()

A ZooKeeper is started beside the brokers: see `barnabas.testing.zookeeper` for what it needs. With `zookeeper` the
brokers use one that runs already; the cluster has a node of its own there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from barnabas.testing.broker import Broker, BrokerFailed, topic_counts
from barnabas.testing.clients import Clients
from barnabas.testing.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.results import TopicDescription

# Brokers that are gone are noticed soon. A test that stops a broker for longer sets a longer time.
SESSION_TIMEOUT_MS: Final = 6_000
_REPLICATION_MAX: Final = 3
WAIT_TIMEOUT_MS: Final = 90_000.0
_POLL_S: Final = 0.05


class Cluster(Clients):
    """Running brokers, with ids from 0 on; use it in a `with`, or call `start` and `close`.

    Settings are those of every broker, Kafka's with underscores for dots. A topic has up to three replicas.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        topics: Iterable[str] | Mapping[str, int] = (),
        zookeeper: str | None = None,
        port: int | None = None,
        **settings: object,
    ) -> None:
        """`port` is that of the first broker, and the others have the next ones; without it they have free ones."""
        assert brokers > 0, "a cluster has at least one broker"
        self._topics = topic_counts(topics)
        self._zookeeper = ZooKeeper() if zookeeper is None else None
        address = self._zookeeper.address if self._zookeeper is not None else zookeeper
        self.zookeeper_connect = f"{address}/barnabas-{uuid4().hex[:8]}"
        replicas = min(brokers, _REPLICATION_MAX)
        common: dict[str, Any] = {
            "zookeeper_connect": self.zookeeper_connect,
            "zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS,
            "default_replication_factor": replicas,
            "offsets_topic_replication_factor": replicas,
            "transaction_state_log_replication_factor": replicas,
            "transaction_state_log_min_isr": min(replicas, 2),
        }
        self.brokers = [
            Broker(
                port=None if port is None else port + number,
                **{**common, **settings, "broker_id": number},
            )
            for number in range(brokers)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def zookeeper(self) -> ZooKeeper | None:
        """The server that was started for this cluster."""
        return self._zookeeper

    def start(self) -> None:
        """Returns when all brokers answer and the topics that were asked for have their replicas in sync."""
        try:
            if self._zookeeper is not None:
                self._zookeeper.start()
            # The first one makes the cluster; the others start at the same time.
            self.brokers[0].start()
            with ThreadPoolExecutor(max(1, len(self.brokers) - 1)) as starting:
                list(starting.map(Broker.start, self.brokers[1:]))
            self.wait_for_brokers()
            if self._topics:
                self.create_topics(self._topics)
                self.wait_until_in_sync(self._topics)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends everything at once and removes the data."""
        try:
            for broker in self.brokers:
                broker.close()
        finally:
            if self._zookeeper is not None:
                self._zookeeper.close()

    def leader_of(self, topic: str, partition: int = 0) -> Broker:
        """The broker that leads a partition. Waits for one."""

        def leads(described: TopicDescription) -> bool:
            return described.partitions[partition].leader is not None

        described = self._wait_for_topics([topic], leads, f"partition {partition} of {topic} has no leader")
        leader = described[topic].partitions[partition].leader
        assert leader is not None
        return self.brokers[leader]

    def controller(self, *, timeout_ms: float = WAIT_TIMEOUT_MS) -> Broker:
        """The broker that is the controller. Waits for one."""
        deadline = time.monotonic() + timeout_ms / 1000
        with self.admin() as admin:
            while True:
                found = admin.describe_cluster().controller_id
                if found is not None and self.brokers[found].is_running:
                    return self.brokers[found]
                _wait_again(deadline, "the cluster has no controller")

    def wait_for_brokers(self, *, timeout_ms: float = WAIT_TIMEOUT_MS) -> None:
        """Waits until every running broker knows of all running brokers."""
        ids = {number for number, broker in enumerate(self.brokers) if broker.is_running}
        deadline = time.monotonic() + timeout_ms / 1000
        for number in ids:
            with self.brokers[number].admin() as admin:
                while (known := {node.id for node in admin.describe_cluster().nodes}) != ids:
                    _wait_again(deadline, f"broker {number} knows brokers {sorted(known)}, not {sorted(ids)}")

    def wait_until_in_sync(
        self, topics: Iterable[str] | None = None, *, timeout_ms: float = WAIT_TIMEOUT_MS
    ) -> None:
        """Waits until all replicas of these topics are in sync; without names, of all topics."""

        def is_in_sync(described: TopicDescription) -> bool:
            return all(
                each.leader is not None and set(each.isr) == set(each.replicas)
                for each in described.partitions
            )

        self._wait_for_topics(topics, is_in_sync, "not all replicas are in sync", timeout_ms)

    def _wait_for_topics(
        self,
        topics: Iterable[str] | None,
        is_ready: Callable[[TopicDescription], bool],
        problem: str,
        timeout_ms: float = WAIT_TIMEOUT_MS,
    ) -> dict[str, TopicDescription]:
        names = None if topics is None else list(topics)
        deadline = time.monotonic() + timeout_ms / 1000
        with self.admin() as admin:
            while True:
                described = _describe(admin, names)
                waiting = [each for each in (described or {}).values() if not is_ready(each)]
                if described is not None and not waiting:
                    return described
                reason = waiting[0] if waiting else f"a broker does not know all of {', '.join(names or ())}"
                _wait_again(deadline, f"{problem}: {reason}")


def _describe(admin: Admin, names: list[str] | None) -> dict[str, TopicDescription] | None:
    """None if the broker that is asked does not know one of the topics yet: the controller knows new topics first."""
    from barnabas.errors import UnknownTopicOrPartition

    described = None
    try:
        described = admin.describe_topics(names)
    except* UnknownTopicOrPartition:
        pass
    return described


def _wait_again(deadline: float, problem: str) -> None:
    if time.monotonic() > deadline:
        raise BrokerFailed(problem)
    time.sleep(_POLL_S)
