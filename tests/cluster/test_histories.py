"""Real clients on three real brokers, with SIGKILLs of both: their history has no anomaly.

The classic clients of `tests/histories` run against a cluster: leaders, controllers and coordinators die under them.
A few faults in the usual run; `make soak` has more. HISTORIES_FAULTS and HISTORIES_SEED set other numbers.
"""

from __future__ import annotations

import os
import random
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.clusters import Cluster, ClusterBroker, cluster
from tests.cluster.responsible import ResponsibleClient, responsible
from tests.histories.test_workload import CLASSIC, SEED, SETTINGS, check_history
from tests.histories.workload import PARTITIONS, Workload
from tests.peers.zookeeper_peer import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.peer]

IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
FAULTS: Final = int(os.environ.get("HISTORIES_FAULTS", "30" if IS_SOAK else "4"))
REPLICAS: Final = 3


class FaultyCluster:
    """A cluster of which one broker at a time is killed: in turn a leader, the controller, any broker."""

    def __init__(self, brokers: Cluster, seed: int) -> None:
        self._cluster = brokers
        self._rng = random.Random(seed)
        self._kills = 0
        self._killed: ClusterBroker | None = None

    @property
    def address(self) -> str:
        return self._cluster.bootstrap

    def client(self) -> AbstractContextManager[ResponsibleClient]:
        return responsible(self._cluster)

    def kill(self) -> None:
        self._killed = self._cluster[self._victim()]
        self._killed.kill()
        self._kills += 1

    def start(self) -> None:
        """Nothing that is confirmed may need the broker that was killed: it comes back when others lead."""
        assert self._killed is not None
        for topic in ("in", "out"):
            for partition in range(PARTITIONS):
                self._cluster.wait_for_leader(topic, partition, other_than=self._killed.broker_id)
        self._killed.start()
        for topic in ("in", "out"):
            self._cluster.wait_for_topic(topic, partitions=PARTITIONS, isr=REPLICAS)

    def _victim(self) -> int:
        match self._kills % 3:
            case 0:
                return self._cluster.wait_for_leader("in", self._rng.randrange(PARTITIONS))
            case 1:
                return self._cluster.wait_for_controller()
            case _:
                return self._rng.choice(self._cluster.running).broker_id


def test_a_history_under_kills_of_brokers_has_no_anomaly(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with cluster(REPLICAS, tmp_path, zookeeper, min_insync_replicas=2, **settings) as brokers:
        service = FaultyCluster(brokers, SEED)
        with Workload(service, CLASSIC, tmp_path, SEED, replication_factor=REPLICAS) as workload:
            workload.run(FAULTS)
            check_history(*workload.finish())
        for broker in brokers:
            assert "Traceback" not in broker.log_file.read_text()
