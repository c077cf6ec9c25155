"""A cluster that faults hit, one after the other, for a workload of `tests/histories`.

A fault lasts until others could take over: longer than a session with ZooKeeper, and longer than a replica may lag. It
ends before the next one, which comes when all replicas are in sync. So with `min.insync.replicas` 2 of 3, whatever was
acknowledged must survive each of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.cluster.clusters import ClusterBroker, require_zookeeper
from tests.cluster.mixed import BARNABAS, KAFKA, MixedCluster, Software, require_kafka
from tests.cluster.networks import Host, Network, network, require_namespaces
from tests.cluster.responsible import ResponsibleClient, responsible
from tests.histories.test_workload import SETTINGS
from tests.peers import zookeeper_peer
from tests.peers.zookeeper_peer import ZooKeeperEnsemble
from tests.waiting import wait_until

SESSION_MS: Final = 3_000
LAG_MS: Final = 3_000
# Leaders look for replicas that lag every half of the bound, so after this time they have seen it.
TAKEN_OVER_S: Final = max(SESSION_MS, 1.5 * LAG_MS) / 1_000 + 1.0
ZOOKEEPER: Final = "zookeeper"
CLUSTER_SETTINGS: Final = {
    **SETTINGS,
    "zookeeper.session.timeout.ms": SESSION_MS,
    "zookeeper.connection.timeout.ms": 60_000,
    "replica.lag.time.max.ms": LAG_MS,
    # A broker that does not hear from another one asks a third.
    "controller.socket.timeout.ms": 5_000,
    "replica.socket.timeout.ms": 5_000,
    "request.timeout.ms": 5_000,
}
REPLICATION: Final = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}
PROCESS_FAULTS: Final = ("kill", "hang", "zookeeper leader")
NETWORK_FAULTS: Final = ("cut off from brokers", "one way", "cut off from zookeeper", "mute to zookeeper")


class FaultyCluster:
    """Three brokers, of which one at a time is hit: in turn a leader, the controller, any of them."""

    def __init__(
        self, brokers: MixedCluster, ensemble: ZooKeeperEnsemble, net: Network | None, seed: int
    ) -> None:
        self._brokers = brokers
        self._ensemble = ensemble
        self._net = net
        self._rng = random.Random(f"faults {seed}")
        self._kinds: list[str] = []
        self._end: Callable[[], None] | None = None
        # What has been done, for the message when something is found.
        self.done: list[str] = []

    @property
    def address(self) -> str:
        return self._brokers.bootstrap

    def client(self) -> AbstractContextManager[ResponsibleClient]:
        return responsible(self._brokers)

    def kill(self) -> None:
        """The next fault begins."""
        if not self._kinds:
            self._kinds = [*PROCESS_FAULTS, *(NETWORK_FAULTS if self._net is not None else ())]
            self._rng.shuffle(self._kinds)
        kind, victim = self._kinds.pop(), self._brokers[self._victim()]
        self.done.append(f"{kind}: {victim.broker_id}")
        self._end = self._begin(kind, victim)

    def start(self) -> None:
        """The fault ends, and the cluster recovers."""
        assert self._end is not None
        self._end()
        self._brokers.wait_until_in_sync(after_fault=True)
        for broker in self._brokers.running:
            if self._brokers.either(broker.broker_id).lacks_coordinator:
                self.done.append(f"restart, as an operator has to: {broker.broker_id}")
                assert broker.stop() == 0, broker.log_text()[-4000:]
                broker.start()
                self._brokers.wait_until_in_sync(after_fault=True)

    def _victim(self) -> int:
        match len(self.done) % 3:
            case 0:
                return self._brokers.wait_for_leader("in", 0)
            case 1:
                return self._brokers.wait_for_controller()
            case _:
                return self._rng.choice(self._brokers.running).broker_id

    def _begin(self, kind: str, victim: ClusterBroker) -> Callable[[], None]:
        """Begins a fault, waits until others could take over, and returns what ends it."""
        match kind:
            case "kill":
                return self._kill(victim)
            case "hang":
                return self._hang(victim)
            case "zookeeper leader":
                return self._kill_zookeeper_leader()
            case _:
                return self._cut(kind, victim)

    def _kill(self, victim: ClusterBroker) -> Callable[[], None]:
        victim.kill()
        self._wait_until_missed(victim)
        return victim.start

    def _hang(self, victim: ClusterBroker) -> Callable[[], None]:
        victim.pause()
        self._wait_until_missed(victim)
        time.sleep(self._rng.uniform(0, TAKEN_OVER_S))
        return victim.resume

    def _wait_until_missed(self, victim: ClusterBroker) -> None:
        wait_until(
            lambda: self._brokers.broker_epoch(victim.broker_id) is None,
            f"the session of broker {victim.broker_id} has ended",
        )

    def _kill_zookeeper_leader(self) -> Callable[[], None]:
        leader = wait_until(self._ensemble.leader, "a leader of ZooKeeper")
        assert leader is not None
        leader.kill()
        wait_until(self._ensemble.leader, "another leader of ZooKeeper")

        def end() -> None:
            leader.start()
            leader.wait_until_ready()

        return end

    def _cut(self, kind: str, victim: ClusterBroker) -> Callable[[], None]:
        net = self._net
        assert net is not None
        for sender, receiver in self._lost(kind, victim.broker_id):
            net.cut(sender, receiver)
        time.sleep(self._rng.uniform(TAKEN_OVER_S, 2 * TAKEN_OVER_S))
        return net.heal

    def _lost(self, kind: str, victim: int) -> list[tuple[str, str]]:
        """Who is not heard by whom."""
        me = host_name(victim)
        others = [host_name(each.broker_id) for each in self._brokers if each.broker_id != victim]
        match kind:
            case "cut off from brokers":
                return [pair for other in others for pair in ((me, other), (other, me))]
            case "one way":
                return [(me, other) for other in self._rng.sample(others, self._rng.randint(1, 2))]
            case "cut off from zookeeper":
                return [(me, ZOOKEEPER), (ZOOKEEPER, me)]
            case _:
                return [(me, ZOOKEEPER)]


def host_name(broker_id: int) -> str:
    return f"broker-{broker_id}"


@contextmanager
def faulty_cluster(
    members: Mapping[int, Software], folder: Path, seed: int, *, with_network: bool
) -> Iterator[FaultyCluster]:
    """Brokers on an ensemble of three ZooKeeper servers; with a network, each is a host, and so is the ensemble."""
    require_zookeeper()
    if KAFKA in members.values():
        require_kafka()
    if with_network:
        require_namespaces()
    with ExitStack() as stack:
        net = stack.enter_context(network([ZOOKEEPER, *map(host_name, members)])) if with_network else None
        ensemble = stack.enter_context(_ensemble(folder, net))
        brokers = MixedCluster(ensemble, folder)
        stack.callback(brokers.close)
        brokers.tree.ensure_path("/")
        for broker_id, software in members.items():
            broker = brokers.add_either(broker_id, software, {**REPLICATION, **CLUSTER_SETTINGS})
            if net is not None:
                broker.host, broker.prefix = net[host_name(broker_id)]
        try:
            brokers.start_all()
            yield FaultyCluster(brokers, ensemble, net, seed)
            for each in brokers:
                if members[each.broker_id] == BARNABAS:
                    assert "Traceback" not in each.log_file.read_text()
        except BaseException:
            brokers.print_logs()
            raise


@contextmanager
def _ensemble(folder: Path, net: Network | None) -> Iterator[ZooKeeperEnsemble]:
    host = Host("127.0.0.1", []) if net is None else net[ZOOKEEPER]
    with zookeeper_peer.ensemble(
        zookeeper_peer.V3_8, folder / "zookeeper", host=host.address, prefix=host.prefix
    ) as servers:
        yield ZooKeeperEnsemble(servers)
