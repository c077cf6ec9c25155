"""Brokers that are Apache Kafka 3.9.1 at one time and Barnabas at another, on the same id, settings and log directory.

    with mixed_cluster({1: KAFKA, 2: KAFKA, 3: BARNABAS}, tmp_path, zookeeper) as brokers:
        brokers[1].switch_to(BARNABAS)

Both read one `server.properties`, as a user has it who moves from one to the other.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

import pytest

from tests.cluster.clusters import Cluster, ClusterBroker, require_zookeeper
from tests.peers.kafka_peer import START_TIMEOUT_S, STOP_TIMEOUT_S, V3, PeerUnavailable, jars
from tests.peers.zookeeper_peer import ZooKeeperEnsemble, ZooKeeperServer
from tests.waiting import wait_until

Software = Literal["Apache Kafka", "Barnabas"]
KAFKA: Final[Software] = "Apache Kafka"
BARNABAS: Final[Software] = "Barnabas"
# What 3.9.1 knows: nothing is finalized.
NO_FEATURES: Final = {"features": {}, "version": 2, "status": 1}
_KAFKA_READY: Final = "started (kafka.server.KafkaServer)"
_KAFKA_LOAD_FAILED: Final = "Uncaught exception in scheduled task 'load-txns-for-partition"
_LOGGING: Final = (
    "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
    "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %m (%c)%n\n"
    "log4j.logger.kafka.server.KafkaServer=INFO\n"
)


def require_kafka() -> None:
    """Skips the test where there is no Apache Kafka 3.9.1 or no ZooKeeper."""
    require_zookeeper()
    try:
        jars(V3)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))


class EitherBroker(ClusterBroker):
    """A broker of a cluster that runs either software. It changes while it is stopped."""

    def __init__(
        self, broker_id: int, directory: Path, overrides: dict[str, str], software: Software
    ) -> None:
        super().__init__(broker_id, directory, overrides)
        self.software: Software = software

    @property
    def properties_file(self) -> Path:
        return self.directory.with_name(f"{self.directory.name}.properties")

    def command(self) -> list[str]:
        lines = [f"{name}={value}\n" for name, value in self.settings().items()]
        self.properties_file.write_text("".join(lines))
        if self.software == BARNABAS:
            return [sys.executable, "-m", "barnabas", "start", str(self.properties_file)]
        logging = self.directory.with_name("log4j.properties")
        logging.write_text(_LOGGING)
        options = ("-Xmx256M", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{logging}")
        return ["java", *options, "-cp", f"{jars(V3)}/*", "kafka.Kafka", str(self.properties_file)]

    def wait_until_ready(self) -> None:
        if self.software == BARNABAS:
            super().wait_until_ready()
        else:
            self.wait_for_line(_KAFKA_READY, START_TIMEOUT_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """0 after an orderly end, for both."""
        if self.software == BARNABAS:
            return super().stop(number)
        assert self._process is not None
        self._process.send_signal(number)
        code = self.wait(STOP_TIMEOUT_S)
        # Java's way to say that it has ended because of the signal, with its shutdown hooks run.
        return 0 if code == 128 + number else code

    @property
    def lacks_coordinator(self) -> bool:
        """Whether the end of a session has interrupted a load of transactions.

        Apache Kafka 3.9.1 never begins it again, and answers COORDINATOR_LOAD_IN_PROGRESS until it is restarted.
        """
        return self.software == KAFKA and _KAFKA_LOAD_FAILED in self.log_text()

    def switch_to(self, software: Software) -> None:
        """Stops the broker in order and starts the other software in its place."""
        assert self.stop() == 0, self.log_text()[-4000:]
        self.software = software
        self.start()


class MixedCluster(Cluster):
    """Brokers of both kinds on one ZooKeeper."""

    def add_either(self, broker_id: int, software: Software, settings: Mapping[str, object]) -> EitherBroker:
        """A broker that is not started yet. Settings have Kafka's names."""
        texts = self.settings_of(broker_id, settings)
        broker = EitherBroker(broker_id, self._folder / f"broker-{broker_id}", texts, software)
        self._brokers[broker_id] = broker
        return broker

    def either(self, broker_id: int) -> EitherBroker:
        broker = self[broker_id]
        assert isinstance(broker, EitherBroker)
        return broker

    def wait_until_in_sync(self, *, after_fault: bool = False) -> None:
        """Until all replicas of all topics are in sync, and every broker knows that, and all other brokers.

        After a fault, brokers of Kafka need not know it if the controller is one: it repeats a request on another
        connection while the first may still be on its way, and then they keep what is older. Ours do not, and our
        controller ends such requests.
        """
        self.wait_for_brokers()
        # A broker that was cut off has not heard yet that replicas are not in sync.
        wait_until(
            lambda: not self.out_of_sync(),
            lambda: f"ZooKeeper has {self.out_of_sync()}",
            timeout_s=START_TIMEOUT_S,
        )
        may_keep = after_fault and self.either(self.wait_for_controller()).software == KAFKA
        for broker in self.running:
            if may_keep and self.either(broker.broker_id).software == KAFKA:
                continue
            wait_until(
                lambda b=broker: not b.out_of_sync(),  # type: ignore[misc]
                lambda b=broker: f"broker {b.broker_id} knows {b.out_of_sync()}",
                timeout_s=START_TIMEOUT_S,
            )

    def out_of_sync(self) -> list[str]:
        """The partitions that have no leader or not all replicas in sync, as ZooKeeper has it."""
        found = []
        for topic in self.tree.retry(self.tree.get_children, "/brokers/topics"):
            path = f"/brokers/topics/{topic}"
            for index, replicas in self.node(path)["partitions"].items():
                state = self.node(f"{path}/partitions/{index}/state")
                if state is None or state["leader"] < 0 or sorted(state["isr"]) != sorted(replicas):
                    found.append(f"{topic}-{index}")
        return found

    def start_all(self) -> None:
        """All at once: a broker of ours is most likely the first one, and the controller."""
        for broker in self:
            broker.begin_start()
        for broker in self:
            broker.wait_until_ready()
        self.wait_for_brokers()
        self.wait_for_controller()
        if any(self.either(each.broker_id).software == KAFKA for each in self):
            wait_until(lambda: self.node("/feature") == NO_FEATURES, lambda: self.node("/feature"))


@contextlib.contextmanager
def mixed_cluster(
    members: Mapping[int, Software],
    folder: Path,
    zookeeper: ZooKeeperServer | ZooKeeperEnsemble,
    settings: Mapping[str, object] | None = None,
) -> Iterator[MixedCluster]:
    """Running brokers, with a controller. A new cluster with a member of Apache Kafka has no finalized features."""
    require_kafka()
    brokers = MixedCluster(zookeeper, folder)
    # Kafka creates the chroot only if it may, and does so once for all: the brokers start together.
    brokers.tree.ensure_path("/")
    factor = min(3, len(members))
    defaults = {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": max(1, factor - 1),
        "min.insync.replicas": max(1, factor - 1),
    }
    try:
        for broker_id, software in members.items():
            brokers.add_either(broker_id, software, {**defaults, **(settings or {})})
        brokers.start_all()
        yield brokers
    except BaseException:
        brokers.print_logs()
        raise
    finally:
        brokers.close()
