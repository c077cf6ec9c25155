"""Brokers for the benchmarks, each in its own process: Apache Kafka as its start script runs it, and Barnabas.

Both have the same settings. Deleted topics leave the disk at once, so that a run needs little space and unwritten data
of one broker does not slow down the other.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from barnabas.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.testing import free_port
from barnabas.testing.ports import free_ports
from bench import load
from tests.clients.broker_process import BrokerProcess
from tests.peers.kafka_peer import V4, jars, run_tool

# These bound a wait on a busy machine; they are not expected times.
ANSWER_TIMEOUT_S: Final = 240
HOST_BROKERS: Final = 2
POLL_S: Final = 0.002

SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "0",
}
HEAP: Final = ("-Xmx1G", "-Xms1G")
# The options of Apache Kafka's own start script for Java.
JAVA_OPTIONS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)


class MeasuredBroker(BrokerProcess):
    """Barnabas, from the package that is installed."""

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, {**SETTINGS, **(overrides or {})})
        self.started_in_s = 0.0

    def start(self) -> None:
        """Returns when the broker has answered a Metadata request; `started_in_s` is the time until then."""
        start = time.perf_counter()
        self.begin_start()
        assert self._process is not None
        while not _answers(self.port):
            spent_s = time.perf_counter() - start
            assert self._process.poll() is None, f"the broker ended:\n{self.log_text()[-4000:]}"
            assert spent_s < ANSWER_TIMEOUT_S, f"no answer in {spent_s:.0f} s:\n{self.log_text()[-4000:]}"
            time.sleep(POLL_S)
        self.started_in_s = time.perf_counter() - start

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Returns when every partition can be read: Apache Kafka names leaders that do not know it yet."""
        load.create_topic(self.port, name, partitions)
        leaders = load.leader_ports(self.port, name)
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        for port in set(leaders):
            led = [number for number, leader in enumerate(leaders) if leader == port]
            while not _can_be_read(port, name, led):
                assert time.monotonic() < deadline_s, f"{name} cannot be read after {ANSWER_TIMEOUT_S} s"
                time.sleep(POLL_S)

    @property
    def pids(self) -> list[int]:
        """The processes that do the work."""
        return [self.pid]

    def delete_topic(self, name: str) -> None:
        with load.connect(load.controller_port(self.port)) as connected:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
            [answer] = load.ask(connected, "DeleteTopics", 4, request).responses
        assert answer.error_code == 0, answer


def _can_be_read(port: int, topic: str, partitions: Sequence[int]) -> bool:
    asked = [FetchPartition(partition=number, partition_max_bytes=1) for number in partitions]
    request = FetchRequest(
        replica_id=-1, max_bytes=1, session_epoch=-1, topics=[FetchTopic(topic=topic, partitions=asked)]
    )
    with load.connect(port) as connected:
        [found] = load.ask(connected, "Fetch", load.FETCH_VERSION, request).responses
    return all(partition.error_code == 0 for partition in found.partitions)


class MeasuredHost(MeasuredBroker):
    """Several brokers of Barnabas on one host: `barnabas start --brokers N`. `port` is that of the first."""

    def __init__(
        self, directory: Path, overrides: Mapping[str, str] | None = None, *, brokers: int = HOST_BROKERS
    ) -> None:
        super().__init__(directory, overrides)
        self._brokers = brokers
        self.port = free_ports(brokers)

    def command(self) -> list[str]:
        return [*super().command(), "--brokers", str(self._brokers)]

    def start(self) -> None:
        super().start()
        self.wait_until_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A supervisor that is killed leaves brokers behind that still end.
        self.stop()

    @property
    def pids(self) -> list[int]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]


class ApacheKafka(MeasuredBroker):
    """The newest Apache Kafka on one node, its controller in the same process."""

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides)
        controller = f"127.0.0.1:{free_port()}"
        properties = {
            **self.overrides,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(directory),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        self._properties = directory.with_name(f"{directory.name}.properties")
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        cluster_id = str(uuid.uuid4())
        run_tool(V4, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties))

    def command(self) -> list[str]:
        libraries = f"{jars(V4)}/*"
        return ["java", *HEAP, *JAVA_OPTIONS, "-cp", libraries, "kafka.Kafka", str(self._properties)]


def _answers(port: int) -> bool:
    """Whether the broker runs and is in its own metadata."""
    try:
        with load.connect(port) as connected:
            return bool(load.ask(connected, "Metadata", 4, MetadataRequest(topics=[])).brokers)
    except OSError:
        return False


def java_producer(port: int, topic: str, records: int, record_bytes: int) -> float:
    """The records per second that Kafka's ProducerPerformance reports for its own run."""
    told = run_tool(
        V4,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers=127.0.0.1:{port}", "acks=1"),
    )
    summary = told.splitlines()[-1]
    count, _, rest = summary.partition(" records sent, ")
    assert int(count) == records, told
    return float(rest.partition(" records/sec")[0])


def java_consumer(port: int, topic: str, records: int) -> float:
    """Records a second through Kafka's console consumer with an assigned partition, the start of Java included.

    ConsumerPerformance subscribes in a group, which a broker without groups has no answer for.
    """
    start = time.perf_counter()
    run_tool(
        V4,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", f"127.0.0.1:{port}", "--topic", topic, "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(records), "--timeout-ms", "60000"),
        *("--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter"),
    )
    return records / (time.perf_counter() - start)
