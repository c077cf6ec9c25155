"""The brokers that the consumer's tests run against: ours, and Apache Kafka's from Maven's jars."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

import barnabas
from barnabas.client.admin.results import NewTopic
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.testing import free_port
from tests.broker.raw_client import RawClient
from tests.clients.broker_process import START_TIMEOUT_S, BrokerProcess
from tests.peers.kafka_peer import V3, V4, PeerUnavailable, jars, run_tool
from tests.waiting import Deadline, wait_until

OURS: Final = "barnabas"
SERVERS: Final = (
    OURS,
    pytest.param(V4, marks=[pytest.mark.slow, pytest.mark.peer]),
    pytest.param(V3, marks=[pytest.mark.slow, pytest.mark.peer]),
)
WAIT_S: Final = 60.0

_numbers = itertools.count(1)


class KafkaProcess(BrokerProcess):
    """A node of Apache Kafka, the cluster's controller in the same process unless another node has it."""

    def __init__(
        self,
        directory: Path,
        version: str,
        *,
        joins: KafkaProcess | None = None,
        listeners: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        """`listeners` are further ones, by security protocol."""
        super().__init__(directory)
        self._version = version
        self.node_id: int = 1 if joins is None else joins.node_id + 1
        self.cluster_id: str = str(uuid.uuid4()) if joins is None else joins.cluster_id
        self.controller: str = f"127.0.0.1:{free_port()}" if joins is None else joins.controller
        further = listeners or {}
        advertised = ",".join(
            [f"PLAINTEXT://{self.address}", *(f"{name}://127.0.0.1:{port}" for name, port in further.items())]
        )
        protocols = "".join(f",{name}:{name}" for name in further)
        properties = {
            "process.roles": "broker,controller" if joins is None else "broker",
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"1@{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{advertised},CONTROLLER://{self.controller}" if joins is None else advertised,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "log.dirs": str(directory),
            "log.retention.ms": "-1",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            **(settings or {}),
        }
        self._properties = directory.with_name(f"{directory.name}.properties")
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        options = ["-t", self.cluster_id, "-c", str(self._properties), *format_options]
        run_tool(version, "kafka.tools.StorageTool", "format", *options)

    def command(self) -> list[str]:
        libraries = f"{jars(self._version)}/*"
        return ["java", "-Xmx512M", "-cp", libraries, "kafka.Kafka", str(self._properties)]

    def start(self) -> None:
        self.begin_start()
        deadline = Deadline(START_TIMEOUT_S)
        while not self._answers():
            assert self._process is not None
            assert self._process.poll() is None, f"Kafka ended:\n{self.log_text()[-4000:]}"
            deadline.check(lambda: f"Kafka does not answer:\n{self.log_text()[-4000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with RawClient(self.port) as client:
                return bool(client.ask("Metadata", 4, MetadataRequest(topics=[])).brokers)
        except (OSError, ValueError):
            return False


class Server:
    """A running broker with what the tests ask of it."""

    def __init__(self, kind: str, process: BrokerProcess, admin: barnabas.Admin) -> None:
        self.kind = kind
        self.process = process
        self.admin = admin

    @property
    def address(self) -> str:
        return self.process.address

    @property
    def has_consumer_protocol(self) -> bool:
        return self.kind != V3

    def topic(self, partitions: int = 1, *, name: str | None = None, **configs: str) -> str:
        """A new topic that no other test uses; an underscore in a setting's name stands for a dot."""
        name = name or f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topics([NewTopic(name=name, partitions=partitions, configs=settings)])
        return name

    def produce(self, topic: str, values: Iterable[bytes], *, partition: int = 0, **settings: object) -> None:
        with barnabas.Producer(bootstrap_servers=self.address, **settings) as producer:
            for value in values:
                producer.send(topic, value, partition=partition)
            producer.flush(timeout_ms=WAIT_S * 1000)

    def consumer(self, **settings: object) -> barnabas.Consumer:
        return barnabas.Consumer(bootstrap_servers=self.address, **consumer_settings(settings))


def consumer_settings(settings: dict[str, object]) -> dict[str, object]:
    """Without long waits, from the beginning, unless a test says otherwise."""
    defaults: dict[str, object] = {
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 50,
        "retry_backoff_ms": 10,
        "reconnect_backoff_ms": 10,
    }
    if settings.get("group_id") is not None and settings.get("group_protocol") != "consumer":
        defaults |= {"heartbeat_interval_ms": 50, "session_timeout_ms": 10_000}
    return defaults | settings


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Server]:
    """The broker of that kind; skips, loudly, where a real Kafka is not to be had."""
    process: BrokerProcess
    if kind == OURS:
        process = BrokerProcess(
            folder / "data",
            {
                "group.initial.rebalance.delay.ms": "0",
                "group.consumer.heartbeat.interval.ms": "300",
                "group.consumer.min.heartbeat.interval.ms": "100",
                "offsets.topic.num.partitions": "2",
                "transaction.state.log.num.partitions": "2",
            },
        )
    else:
        try:
            process = KafkaProcess(folder / "data", kind)
        except PeerUnavailable as reason:
            pytest.skip(f"Apache Kafka {kind} is needed: {reason}")
    with process, barnabas.Admin(bootstrap_servers=process.address) as admin:
        yield Server(kind, process, admin)
        if kind == OURS:
            assert "Traceback" not in process.log_text(), process.log_text()


def read(consumer: barnabas.Consumer, count: int) -> list[barnabas.ConsumerRecord]:
    """So many records; fails if they do not come, or more do."""
    records: list[barnabas.ConsumerRecord] = []
    wait_until(
        lambda: len(records) >= count,
        lambda: f"{len(records)} of {count} records",
        meanwhile=lambda: records.extend(consumer.poll(100)),
    )
    assert len(records) == count
    return records


def values(records: Sequence[barnabas.ConsumerRecord]) -> list[bytes]:
    return [record.value for record in records]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]
