"""A rolling migration: one broker after the other becomes a broker of the other software, while clients go on.

A broker keeps its id, its settings and its log directory. The next one follows when all replicas are in sync again.
`make demo-migration` and `test_migration.py` use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Final

from tests.cluster.clusters import Cluster
from tests.cluster.mixed import KAFKA, NO_FEATURES, EitherBroker, MixedCluster, Software
from tests.cluster.responsible import ResponsibleClient, responsible
from tests.histories.client import Plan
from tests.histories.confluent_clients import HANG
from tests.histories.history import READ_COMMITTED, Event, GaveUp
from tests.histories.test_workload import COOPERATIVE, SESSION, SETTINGS, members, plan

BROKERS: Final = 3
FROM_KAFKA: Final[dict[int, Software]] = dict.fromkeys(range(1, BROKERS + 1), KAFKA)
# Nobody dies in a migration: a busy machine is not to end a session.
CLUSTER_SETTINGS: Final = {
    **SETTINGS,
    "zookeeper.session.timeout.ms": "18000",
    # What else stands in the file that comes with Apache Kafka.
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "log.retention.hours": "168",
    "log.retention.check.interval.ms": "300000",
    "zookeeper.connection.timeout.ms": "18000",
}
# Every error counts here, so the clients do nothing that fails on an undisturbed cluster of Apache Kafka.
PLANS: Final[list[Plan]] = [
    plan("produce", "idempotent"),
    plan("produce-in-transactions", "transactional", flushes_before_abort=True),
    *members("consume", "readers", READ_COMMITTED, COOPERATIVE),
    *members("copy", "copiers", READ_COMMITTED, SESSION, to_topic="out", flushes_before_abort=True),
]


class Undisturbed:
    """The cluster as clients use it. No fault hits it."""

    def __init__(self, brokers: Cluster) -> None:
        self._brokers = brokers

    @property
    def address(self) -> str:
        return self._brokers.bootstrap

    def client(self) -> AbstractContextManager[ResponsibleClient]:
        return responsible(self._brokers)

    def kill(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError


def roll(brokers: MixedCluster, software: Software) -> Iterator[EitherBroker]:
    """Each broker, when it has changed and all replicas are in sync; the controller last, as docs/CLUSTER.md says."""
    remaining = {*FROM_KAFKA}
    while remaining:
        controller = brokers.wait_for_controller()
        broker = brokers.either(min(remaining, key=lambda each: (each == controller, each)))
        remaining.discard(broker.broker_id)
        broker.switch_to(software)
        brokers.wait_until_in_sync()
        assert brokers.node("/feature") == NO_FEATURES
        yield broker


def errors(events: list[Event]) -> list[GaveUp]:
    """What clients have seen that a retry does not cover. The hang of librdkafka is not ours: see `given_up_after`."""
    return [event for event in events if isinstance(event, GaveUp) and HANG not in event.error]
