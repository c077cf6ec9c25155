"""Real clients on three real brokers, under faults of all of them: their history has no anomaly.

Clients and brokers are killed, brokers hang for longer than their session, the leader of ZooKeeper's ensemble is
killed, and the network loses what a broker sends, to brokers or to ZooKeeper, one way or both. Brokers are Barnabas,
Apache Kafka 3.9.1, or some of each. The usual run has a sample; `make soak` has a hundred histories, twenty of our own
clients, and some of Apache Kafka alone, to validate the checker. HISTORIES_RUNS, HISTORIES_FAULTS and HISTORIES_SEED
set other numbers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.faults import faulty_cluster
from tests.cluster.mixed import BARNABAS, KAFKA, Software
from tests.histories.client import Plan
from tests.histories.history import READ_COMMITTED, READ_UNCOMMITTED
from tests.histories.test_workload import (
    AIOKAFKA_SESSION,
    CLASSIC,
    CONSUMER,
    COOPERATIVE,
    NEW_PROTOCOL,
    OWN_CLASSIC,
    OWN_CONSUMER,
    SESSION,
    check_history,
    members,
    plan,
)
from tests.histories.workload import Workload

pytestmark = [pytest.mark.slow, pytest.mark.peer]

IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
RUNS: Final = int(os.environ.get("HISTORIES_RUNS", "100" if IS_SOAK else "2"))
FAULTS: Final = int(os.environ.get("HISTORIES_FAULTS", "8" if IS_SOAK else "4"))
SEED: Final = int(os.environ.get("HISTORIES_SEED", "7"))
OWN_RUNS: Final = max(RUNS // 5, 1)
CALIBRATIONS: Final = RUNS // 10 if IS_SOAK else 0
REPLICAS: Final = 3
CLUSTERS: Final[dict[str, dict[int, Software]]] = {
    "barnabas": {1: BARNABAS, 2: BARNABAS, 3: BARNABAS},
    "one-kafka": {1: BARNABAS, 2: KAFKA, 3: BARNABAS},
    "two-kafkas": {1: KAFKA, 2: BARNABAS, 3: KAFKA},
}
ALL_KAFKA: Final[dict[int, Software]] = {1: KAFKA, 2: KAFKA, 3: KAFKA}
# Producers with idempotence and transactions, groups, and a copier that consumes and produces in one transaction.
FEW: Final = [
    plan("produce", "idempotent"),
    plan("aiokafka-produce-in-transactions", "aiokafka-transactional"),
    *members("consume", "range", READ_UNCOMMITTED, SESSION),
    *members("copy", "copiers", READ_COMMITTED, COOPERATIVE, to_topic="out"),
    plan("aiokafka-consume", "aiokafka", group="aiokafka", settings=AIOKAFKA_SESSION),
]


# The same with groups of the consumer protocol, which clusters of Barnabas alone have.
FEW_OF_NEW_PROTOCOL: Final = [
    plan("produce", "idempotent"),
    plan("produce-in-transactions", "transactional"),
    *members("consume", "uniform", READ_UNCOMMITTED, NEW_PROTOCOL),
    *members("copy", "copiers", READ_COMMITTED, NEW_PROTOCOL, to_topic="out"),
    plan("consume", "mixed-old", group="mixed", settings=COOPERATIVE),
    plan("consume", "mixed-new", group="mixed", settings=NEW_PROTOCOL),
]


def has_new_protocol(run: int) -> bool:
    """Half of the pure clusters."""
    return KAFKA not in members_of(run).values() and run // len(CLUSTERS) % 2 == 0


def plans(run: int) -> list[Plan]:
    """Every fifth history of the soak has all kinds of clients."""
    if run % 5 == 4:
        return CONSUMER if has_new_protocol(run) else CLASSIC
    return FEW_OF_NEW_PROTOCOL if has_new_protocol(run) else FEW


def own_plans(run: int) -> list[Plan]:
    return OWN_CONSUMER if has_new_protocol(run) else OWN_CLASSIC


def members_of(run: int) -> dict[int, Software]:
    return list(CLUSTERS.values())[run % len(CLUSTERS)]


def check_a_history(
    brokers: dict[int, Software], clients: list[Plan], folder: Path, run: int, *, with_network: bool
) -> None:
    seed = SEED + run
    with faulty_cluster(brokers, folder, seed, with_network=with_network) as service:
        workload = Workload(service, clients, folder, seed, replication_factor=REPLICAS, share_of_brokers=0.8)
        with workload:
            workload.run(FAULTS)
            events, anomalies = workload.finish()
        print(f"seed {seed}: {service.done}")
        check_history(events, anomalies)


@pytest.mark.parametrize("run", range(0, RUNS, 2))
def test_a_history_with_partitions_has_no_anomaly(tmp_path: Path, run: int) -> None:
    check_a_history(members_of(run), plans(run), tmp_path, run, with_network=True)


@pytest.mark.parametrize("run", range(1, RUNS, 2))
def test_a_history_with_kills_and_hangs_has_no_anomaly(tmp_path: Path, run: int) -> None:
    check_a_history(members_of(run), plans(run), tmp_path, run, with_network=False)


@pytest.mark.parametrize("run", range(OWN_RUNS))
def test_a_history_of_our_own_clients_has_no_anomaly(tmp_path: Path, run: int) -> None:
    """Half of them with partitions, on each kind of cluster."""
    check_a_history(members_of(run), own_plans(run), tmp_path, run, with_network=run % 4 < 2)


@pytest.mark.skipif(not IS_SOAK, reason="takes minutes, and tells of the checker, not of us: see `make soak`")
@pytest.mark.parametrize("run", range(CALIBRATIONS))
def test_apache_kafka_has_no_anomaly_either(tmp_path: Path, run: int) -> None:
    """What the checker says of brokers that are known to be right."""
    clients = CLASSIC if run % 5 == 4 else FEW
    check_a_history(ALL_KAFKA, clients, tmp_path, run, with_network=run % 2 == 0)
