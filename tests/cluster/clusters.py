"""A cluster for a test: one real ZooKeeper, and brokers that each run as `barnabas start` in a process of their own.

    with cluster(3, tmp_path, zookeeper, default_replication_factor=3) as brokers:
        brokers[1].kill()
        brokers.wait_for_brokers(2, 3)

Brokers have the ids 1 to n. A test waits for what brokers answer (Metadata) and for what stands in ZooKeeper. When a
test fails, the logs of all brokers are printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse, MetadataResponsePartition
from tests.clients.broker_process import BrokerProcess
from tests.peers import zookeeper_peer
from tests.peers.kafka_peer import PeerUnavailable
from tests.peers.zookeeper_peer import ZooKeeperEnsemble, ZooKeeperServer
from tests.waiting import WAIT_S, wait_until

METADATA_VERSION: Final = 12
# A broker that is killed is missed after this time.
SESSION_MS: Final = 6_000
_SHOWN_CHARACTERS: Final = 8_000
# ZooKeeper derives the password of a session from its id and this number.
_SUPER_SECRET: Final = 0xB3415C00


def require_zookeeper() -> None:
    """Skips the test where no ZooKeeper can be had."""
    try:
        zookeeper_peer.jars(zookeeper_peer.V3_8)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))


class ClusterBroker(BrokerProcess):
    """One broker of a cluster."""

    def __init__(self, broker_id: int, directory: Path, overrides: dict[str, str]) -> None:
        super().__init__(directory, overrides)
        self.broker_id = broker_id

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def pause(self) -> None:
        """Stops the process without ending it: it keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        with self.client() as client:
            answer = client.ask("Metadata", METADATA_VERSION, request)
            assert isinstance(answer, MetadataResponse)
            return answer

    def partition(self, topic: str, partition: int = 0) -> MetadataResponsePartition | None:
        """What the broker answers about a partition; None if it does not know it."""
        for found in self.metadata([topic]).topics:
            for each in found.partitions:
                if each.partition_index == partition:
                    return each
        return None

    def out_of_sync(self) -> list[str]:
        """The partitions of all topics that have no leader or not all replicas in sync, as far as this broker knows."""
        return [
            f"{topic.name}-{each.partition_index}"
            for topic in self.metadata().topics
            for each in topic.partitions
            if each.leader_id < 0 or sorted(each.isr_nodes) != sorted(each.replica_nodes)
        ]


class Cluster:
    """Brokers by their ids."""

    def __init__(self, zookeeper: ZooKeeperServer | ZooKeeperEnsemble, folder: Path) -> None:
        self.zookeeper = zookeeper
        self.chroot = f"/cluster-{uuid4().hex[:12]}"
        self._folder = folder
        self._brokers: dict[int, ClusterBroker] = {}
        self._tree: KazooClient | None = None

    def __getitem__(self, broker_id: int) -> ClusterBroker:
        return self._brokers[broker_id]

    def __iter__(self) -> Iterator[ClusterBroker]:
        return iter(self._brokers.values())

    @property
    def connect(self) -> str:
        """The value of zookeeper.connect."""
        return self.zookeeper.address + self.chroot

    @property
    def running(self) -> list[ClusterBroker]:
        return [each for each in self if each.is_running]

    @property
    def bootstrap(self) -> str:
        return ",".join(each.address for each in self)

    def add(self, broker_id: int, /, **overrides: object) -> ClusterBroker:
        """A broker that is not started yet. Settings have _ for dots."""
        named = {name.replace("_", "."): value for name, value in overrides.items()}
        folder = self._folder / f"broker-{broker_id}"
        broker = ClusterBroker(broker_id, folder, self.settings_of(broker_id, named))
        self._brokers[broker_id] = broker
        return broker

    def settings_of(self, broker_id: int, overrides: Mapping[str, object]) -> dict[str, str]:
        """What a broker of this cluster is started with. Settings have Kafka's names."""
        settings = {
            "broker.id": broker_id,
            "zookeeper.connect": self.connect,
            "zookeeper.session.timeout.ms": SESSION_MS,
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 3,
            "group.initial.rebalance.delay.ms": 0,
            **overrides,
        }
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in settings.items()
        }

    def close(self) -> None:
        for broker in self:
            broker.kill()
        if self._tree is not None:
            self._tree.stop()
            self._tree.close()
            self._tree = None

    def admin(self, **settings: Any) -> Admin:
        return Admin(bootstrap_servers=self.bootstrap, **settings)

    def producer(self, **settings: Any) -> Producer:
        return Producer(bootstrap_servers=self.bootstrap, **settings)

    def consumer(self, **settings: Any) -> Consumer:
        return Consumer(**{"bootstrap_servers": self.bootstrap, "auto_offset_reset": "earliest", **settings})

    def wait_for_brokers(self, *broker_ids: int) -> None:
        """Waits until these brokers, and no others, are in the metadata of every running broker."""
        wanted = sorted(broker_ids or (each.broker_id for each in self.running))
        for broker in self.running:
            wait_until(
                lambda b=broker: sorted(each.node_id for each in b.metadata([]).brokers) == wanted,  # type: ignore[misc]
                lambda b=broker: f"broker {b.broker_id} knows {b.metadata([]).brokers}, not {wanted}",
            )

    def wait_for_topic(self, topic: str, *, partitions: int = 1, isr: int | None = None) -> None:
        """Waits until every running broker knows a leader of each partition, and as many replicas in sync."""

        def is_there(broker: ClusterBroker) -> bool:
            for found in broker.metadata([topic]).topics:
                led = [each for each in found.partitions if each.leader_id >= 0 and each.error_code == 0]
                return len(led) == partitions and all(isr in (None, len(each.isr_nodes)) for each in led)
            return False

        for broker in self.running:
            wait_until(
                lambda b=broker: is_there(b),  # type: ignore[misc]
                lambda b=broker: f"broker {b.broker_id} answers {b.metadata([topic]).topics}",
            )

    def wait_for_leader(self, topic: str, partition: int = 0, *, other_than: int = -1) -> int:
        """The leader of a partition on which all running brokers agree."""

        def leader() -> int | None:
            found = {
                -1 if known is None else known.leader_id
                for known in (each.partition(topic, partition) for each in self.running)
            }
            agreed = found.pop() if len(found) == 1 else -1
            return None if agreed in (-1, other_than) else agreed

        agreed = wait_until(leader, lambda: f"leader of {topic}-{partition} other than {other_than}")
        assert agreed is not None
        return agreed

    def wait_for_controller(self, *, other_than: int = -1) -> int:
        """The controller on which all running brokers agree."""

        def controller() -> int | None:
            found = {each.metadata([]).controller_id for each in self.running}
            agreed = found.pop() if len(found) == 1 else -1
            return None if agreed in (-1, other_than) else agreed

        agreed = wait_until(controller, lambda: f"a controller other than {other_than}")
        assert agreed is not None
        return agreed

    @property
    def tree(self) -> KazooClient:
        """A session with ZooKeeper below the chroot of the cluster."""
        if self._tree is None:
            # A test may have ZooKeeper gone for a while: reads wait until it is back.
            patience = {"max_tries": -1, "max_delay": 0.5, "deadline": WAIT_S}
            self._tree = KazooClient(self.zookeeper.address, command_retry=patience)
            self._tree.start()
            self._tree.ensure_path(self.chroot)
            self._tree.chroot = self.chroot
        return self._tree

    def node(self, path: str) -> Any:
        """The JSON of a node; None if there is no node."""
        try:
            data, _ = self.tree.retry(self.tree.get, path)
        except NoNodeError:
            return None
        return json.loads(data) if data else None

    def broker_epoch(self, broker_id: int) -> int | None:
        """The epoch of a broker that is registered."""
        stat = self.tree.retry(self.tree.exists, f"/brokers/ids/{broker_id}")
        return None if stat is None else stat.czxid

    def wait_for_registration(self, broker_id: int, *, other_than: int | None = None) -> int:
        """The broker epoch, once the broker is registered with another one than the given."""
        epoch = wait_until(
            lambda: (
                found if (found := self.broker_epoch(broker_id)) is not None and found != other_than else None
            ),
            lambda: f"broker {broker_id} registered:\n{self[broker_id].log_text()[-_SHOWN_CHARACTERS:]}",
        )
        assert epoch is not None
        return epoch

    def expire_session(self, broker_id: int) -> None:
        """Has ZooKeeper end the session of a broker: a second connection of the same session closes it."""
        end_session(self.tree, self.zookeeper.address, f"/brokers/ids/{broker_id}")

    def print_logs(self) -> None:
        for broker in self:
            if broker.log_file.exists():
                print(f"--- broker {broker.broker_id}, {broker.log_file}:", file=sys.stderr)
                print(broker.log_file.read_text(errors="replace")[-_SHOWN_CHARACTERS:], file=sys.stderr)


@contextlib.contextmanager
def cluster(
    count: int, folder: Path, zookeeper: ZooKeeperServer | None = None, **overrides: object
) -> Iterator[Cluster]:
    """Brokers 1 to `count`, registered and with a controller. Without a ZooKeeper the cluster starts its own."""
    require_zookeeper()
    with contextlib.ExitStack() as stack:
        if zookeeper is None:
            starting = zookeeper_peer.zookeeper(zookeeper_peer.V3_8, folder / "zookeeper")
            zookeeper = stack.enter_context(starting)
        brokers = Cluster(zookeeper, folder)
        stack.callback(brokers.close)
        factor = min(3, count)
        defaults = {
            "offsets_topic_replication_factor": factor,
            "transaction_state_log_replication_factor": factor,
            "transaction_state_log_min_isr": max(1, factor - 1),
        }
        try:
            for broker_id in range(1, count + 1):
                brokers.add(broker_id, **{**defaults, **overrides}).begin_start()
            for broker in brokers:
                broker.wait_until_ready()
            if count:
                brokers.wait_for_brokers()
                brokers.wait_for_controller()
            yield brokers
        except BaseException:
            brokers.print_logs()
            raise


def end_session(tree: KazooClient, address: str, path: str) -> None:
    """Has ZooKeeper end the session that owns an ephemeral node."""
    stat = tree.exists(path)
    assert stat is not None, f"there is no {path}"
    session_id = stat.ephemeralOwner
    other = KazooClient(address, client_id=(session_id, _session_password(session_id)))
    other.start()
    other.stop()
    other.close()


def _session_password(session_id: int) -> bytes:
    """The password that ZooKeeper has given a session: 16 bytes of Java's generator of random numbers."""
    seed = ((session_id ^ _SUPER_SECRET) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    password = b""
    while len(password) < 16:
        seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        password += (seed >> 16).to_bytes(4, "little")
    return password
