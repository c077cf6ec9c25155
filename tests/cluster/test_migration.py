"""Three brokers of Apache Kafka 3.9.1 become three of Barnabas, one after the other, and Apache Kafka again.

Producers with idempotence and with transactions, and consumers of groups, go on all the time: nothing is lost, and no
client sees an error that a retry does not cover. `make soak` has more clients, and one of Java.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.loads import JavaLoad, Load, OwnLoad, read_topic
from tests.cluster.migration import (
    BROKERS,
    CLUSTER_SETTINGS,
    FROM_KAFKA,
    PLANS,
    Undisturbed,
    errors,
    roll,
)
from tests.cluster.mixed import BARNABAS, KAFKA, EitherBroker, MixedCluster, mixed_cluster
from tests.histories.test_workload import check_history
from tests.histories.workload import Workload
from tests.peers.zookeeper_peer import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.peer]

IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "1"
ROUNDS: Final = 5 if IS_SOAK else 1
PARTITIONS: Final = 3
# What either says of a log that is not as it left it.
DAMAGE: Final = re.compile(r"LogLoader|[Cc]orrupt|[Rr]ebuil|damaged|is ignored|lost its checksum|Traceback")


def start_loads(brokers: MixedCluster, folder: Path, running: ExitStack) -> list[Load]:
    """Producers that do not forgive any error: ours and, in the soak, Java's."""
    topics = ["own", "java"] if IS_SOAK else ["own"]
    with brokers.admin() as admin:
        admin.create_topics(dict.fromkeys(topics, PARTITIONS), replication_factor=BROKERS)
    for topic in topics:
        brokers.wait_for_topic(topic, partitions=PARTITIONS, isr=BROKERS)
    loads: list[Load] = [running.enter_context(OwnLoad(brokers, "own", PARTITIONS))]
    if IS_SOAK:
        loads.append(running.enter_context(JavaLoad(brokers, "java", PARTITIONS, folder)))
    return loads


def check_directory(broker: EitherBroker) -> None:
    """Nothing in the directory of the other was damaged or unknown."""
    assert "version=0\n" in (broker.directory / "meta.properties").read_text()
    told = [line for line in broker.log_text().splitlines() if DAMAGE.search(line)]
    assert told == []


def test_from_kafka_to_barnabas_and_back(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with mixed_cluster(FROM_KAFKA, tmp_path, zookeeper, CLUSTER_SETTINGS) as brokers:
        service = Undisturbed(brokers)
        with ExitStack() as running:
            loads = start_loads(brokers, tmp_path, running)
            workload = running.enter_context(
                Workload(service, PLANS, tmp_path, seed=1, replication_factor=BROKERS)
            )
            workload.wait_for_progress()
            for software in [BARNABAS, KAFKA] * ROUNDS:
                first_controller, order = brokers.wait_for_controller(), []
                for broker in roll(brokers, software):
                    order.append(broker.broker_id)
                    check_directory(broker)
                    workload.wait_for_progress()
                    for load in loads:
                        load.wait_for_more()
                assert order[-1] == first_controller
            events, anomalies = workload.finish()
        for load in loads:
            load.check(read_topic(brokers, load.topic, PARTITIONS))
        check_history(events, anomalies)
        assert errors(events) == []
