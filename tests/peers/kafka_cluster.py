"""Several brokers of Apache Kafka 3.9.1 on one ZooKeeper, each a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.testing import free_port
from tests.peers.kafka_peer import START_TIMEOUT_S, V3, JavaProcess, jars
from tests.peers.zookeeper_peer import zookeeper

ZOOKEEPER_VERSION: Final = "3.8.4"
_LOGGING: Final = (
    "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
    "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.out.layout.ConversionPattern=%p %m (%c)%n\nlog4j.logger.kafka.server.KafkaServer=INFO\n"
)


class KafkaBroker:
    """A broker that keeps its port and its data over a restart."""

    def __init__(
        self,
        broker_id: int,
        folder: Path,
        zookeeper_address: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._process: JavaProcess | None = None
        self.port = free_port()
        folder.mkdir()
        properties = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": zookeeper_address,
            "zookeeper.session.timeout.ms": "10000",
            "log.dirs": str(folder / "data"),
            "offsets.topic.num.partitions": "1",
            "auto.leader.rebalance.enable": "false",
            "replica.fetch.wait.max.ms": "100",
            **(settings or {}),
        }
        (folder / "server.properties").write_text(
            "".join(f"{name}={value}\n" for name, value in properties.items())
        )
        (folder / "log4j.properties").write_text(_LOGGING)

    def start(self) -> None:
        options = f"-Dlog4j.configuration=file:{self._folder / 'log4j.properties'}"
        command = ["java", options, "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{jars(V3)}/*"]
        self._process = JavaProcess(
            "kafka", [*command, "kafka.Kafka", str(self._folder / "server.properties")], self._folder
        )

    def wait_until_ready(self) -> None:
        process = self._process
        assert process is not None
        process.wait_until(lambda: "started (kafka.server.KafkaServer)" in process.output(), START_TIMEOUT_S)

    def wait_until_ended(self) -> tuple[int, str]:
        """The exit code and the output of a broker that ends by itself."""
        process = self._process
        assert process is not None
        code = process.wait(START_TIMEOUT_S)
        self._process = None
        return code, process.output()

    def pause(self) -> None:
        """Stops the process without ending it: it keeps its connections and does nothing."""
        assert self._process is not None
        self._process.pause()

    def resume(self) -> None:
        assert self._process is not None
        self._process.resume()

    def output(self) -> str:
        return "" if self._process is None else self._process.output()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


class KafkaCluster:
    def __init__(self, brokers: dict[int, KafkaBroker]) -> None:
        self.brokers = brokers

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())


@contextlib.contextmanager
def kafka_cluster(folder: Path, broker_ids: Sequence[int]) -> Iterator[KafkaCluster]:
    """Raises PeerUnavailable if there is no Kafka here."""
    jars(V3)
    with zookeeper(ZOOKEEPER_VERSION, folder / "zookeeper") as server:
        brokers = {each: KafkaBroker(each, folder / str(each), server.address) for each in broker_ids}
        try:
            for broker in brokers.values():
                broker.start()
            for broker in brokers.values():
                broker.wait_until_ready()
            yield KafkaCluster(brokers)
        finally:
            for broker in brokers.values():
                broker.stop()
