"""Kafka's command line tools, on a cluster of ours and on one of Apache Kafka 3.9.1, side by side.

Both clusters have three brokers with the ids 1 to 3 and the same settings, and use one ZooKeeper. All tools run in one
JVM (`java/ToolServer.java`), because a JVM per call would take most of the time. What must differ between two clusters
(ports, directories, ids that are drawn, times) is replaced before results are compared.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from kazoo.client import KazooClient

from barnabas.client.producer.producer import Producer
from tests.cluster.clusters import ClusterBroker, cluster, end_session
from tests.interop.programs import HERE
from tests.peers.kafka_cluster import KafkaBroker
from tests.peers.kafka_peer import V3, jars
from tests.peers.zookeeper_peer import V3_8, ZooKeeperServer, zookeeper
from tests.waiting import Deadline

BROKER_IDS: Final = (1, 2, 3)
SETTINGS: Final = {
    # Longer than a busy machine keeps a process waiting: a test that kills a broker ends its session.
    "zookeeper.session.timeout.ms": "40000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "replica.fetch.wait.max.ms": "100",
}
# What a read-only tool shows follows the controller's requests to the brokers.
SETTLE_S: Final = 60
_PAUSE_S: Final = 0.1

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT: Final = "org.apache.kafka.tools.LeaderElectionCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
VERIFY: Final = "org.apache.kafka.tools.ReplicaVerificationTool"
LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS: Final = "org.apache.kafka.tools.DeleteRecordsCommand"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"
API_VERSIONS: Final = "kafka.admin.BrokerApiVersionsCommand"
QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
CLUSTER: Final = "org.apache.kafka.tools.ClusterTool"
ACLS: Final = "kafka.admin.AclCommand"


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n--- errors\n{self.err}"


class ToolServer:
    """The JVM that runs the tools."""

    def __init__(self, folder: Path) -> None:
        logging = folder / "log4j.properties"
        # Some tools print the message of an error and log its class.
        logging.write_text(
            "log4j.rootLogger=ERROR, err\nlog4j.appender.err=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.err.target=System.err\nlog4j.appender.err.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.err.layout.ConversionPattern=%m%n\n"
        )
        options = ["-Xmx256M", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{logging}"]
        source = HERE / "java" / "ToolServer.java"
        self._process = subprocess.Popen(
            ["java", *options, "-cp", f"{jars(V3)}/*", str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, main: str, *arguments: str, until: tuple[str, int] | None = None) -> Ran:
        """Runs a tool to its end, or until it has printed a number of lines with a text."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        asked: dict[str, object] = {"main": main, "args": arguments}
        if until is not None:
            asked["until"], asked["times"] = until
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"the tools have ended at {main} {arguments}"
        return Ran(**json.loads(answer))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Side:
    """One of the two clusters."""

    def __init__(self, name: str, server: ZooKeeperServer, chroot: str) -> None:
        self.name = name
        self.brokers: dict[int, ClusterBroker | KafkaBroker] = {}
        self._server = server
        self.tree = KazooClient(server.address)
        self.tree.start()
        self.tree.chroot = chroot
        self._replaced: list[tuple[str, str]] = []

    def add(self, broker_id: int, broker: ClusterBroker | KafkaBroker, directory: Path) -> None:
        self.brokers[broker_id] = broker
        self._replaced.append((str(directory), f"<directory of {broker_id}>"))
        self._replaced.append((f"127.0.0.1:{broker.port}", f"<address of {broker_id}>"))

    def close(self) -> None:
        self.tree.stop()
        self.tree.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    def kill(self, broker_id: int) -> None:
        """Kills a broker and has ZooKeeper notice it at once."""
        self.brokers[broker_id].kill()
        end_session(self.tree, self._server.address, f"/brokers/ids/{broker_id}")

    def start(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if isinstance(broker, KafkaBroker):
            broker.start()
        else:
            broker.begin_start()

    def normal(self, ran: Ran) -> Ran:
        return Ran(ran.code, self._normal_text(ran.out), self._normal_text(ran.err))

    def _normal_text(self, text: str) -> str:
        for found, shown in self._replaced:
            text = text.replace(found, shown)
        for pattern, shown in _DRAWN:
            text = pattern.sub(shown, text)
        # The frames of a stack trace are those of the tool.
        lines = [line for line in text.splitlines() if not line.startswith("\tat ")]
        return "\n".join(line.rstrip() for line in lines)


class Both:
    """Runs a tool on both clusters and notes where they differ; `check` fails with all differences of a test."""

    def __init__(self, tools: ToolServer, ours: Side, kafka: Side, folder: Path) -> None:
        self.ours = ours
        self.kafka = kafka
        self._tools = tools
        self._folder = folder
        self._differences: list[str] = []

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.ours, self.kafka

    def file(self, content: object) -> str:
        """The path of a file with JSON."""
        text = json.dumps(content)
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        path.write_text(text)
        return str(path)

    def run(self, side: Side, tool: str, *arguments: str, until: tuple[str, int] | None = None) -> Ran:
        return side.normal(self._tools.call(tool, *_addressed(side, tool, arguments), until=until))

    def same(
        self,
        tool: str,
        *arguments: str,
        code: int = 0,
        shows: str | None = None,
        change: Callable[[str], str] = str,
    ) -> None:
        """Runs a tool once on each cluster."""
        ours, kafkas = (_changed(self.run(side, tool, *arguments), change) for side in self.sides)
        self._compare(tool, arguments, ours, kafkas, code, shows)

    def refused(self, tool: str, *arguments: str, code: int = 1) -> None:
        """Runs a tool that ends with an error. The errors are the same, and their texts may differ."""
        self.same(tool, *arguments, code=code, change=_without_texts)

    def settled(
        self,
        tool: str,
        *arguments: str,
        shows: str,
        lacks: str | None = None,
        change: Callable[[str], str] = str,
    ) -> None:
        """Runs a tool that changes nothing until both results have a text, or have one no longer, and are the same."""
        deadline = Deadline(SETTLE_S)
        while True:
            ours, kafkas = (_changed(self.run(side, tool, *arguments), change) for side in self.sides)
            is_so = shows in str(kafkas) and (lacks is None or lacks not in str(kafkas))
            if (is_so and ours == kafkas) or deadline.is_over:
                self._compare(tool, arguments, ours, kafkas, 0, shows)
                assert is_so, f"not within {SETTLE_S} s: {tool} {arguments} on Kafka: {kafkas}"
                return
            time.sleep(_PAUSE_S)

    def _compare(
        self, tool: str, arguments: tuple[str, ...], ours: Ran, kafkas: Ran, code: int, shows: str | None
    ) -> None:
        called = f"{tool.rpartition('.')[2]} {' '.join(arguments)}"
        if kafkas.code != code or (shows is not None and shows not in str(kafkas)):
            self._differences.append(f"{called}\nKafka, not as expected: {kafkas}")
        if ours != kafkas:
            lines = difflib.unified_diff(
                str(kafkas).splitlines(), str(ours).splitlines(), "kafka", "ours", lineterm="", n=1
            )
            self._differences.append("\n".join([called, *lines]))

    def check(self) -> None:
        differences, self._differences = self._differences, []
        assert not differences, "\n\n" + "\n\n".join(differences)


_DRAWN: Final = (
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: <id>"),
    # Ours answer DescribeTopicPartitions, which names eligible leader replicas: there are none.
    (re.compile(r"Elr: (N/A)?(?=\t|$)", re.MULTILINE), "Elr:"),
    # Ours name the default of a throttle, as 4.x does.
    (re.compile(r", DEFAULT_CONFIG:[\w.]+\.throttled\.rate=\d{19}"), ""),
    (re.compile(r"adminclient-\d+"), "adminclient"),
    (re.compile(r"Cluster ID: [\w-]{22}"), "Cluster ID: <id>"),
    (re.compile(r"\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]?"), "<time>"),
)


def _without_texts(text: str) -> str:
    text = re.sub(r"^(Error while executing topic command) :.*$", r"\1", text, flags=re.MULTILINE)
    return re.sub(r"(\w+Exception):.*$", r"\1", text, flags=re.MULTILINE)


def _changed(ran: Ran, change: Callable[[str], str]) -> Ran:
    return Ran(ran.code, change(ran.out), change(ran.err))


def _addressed(side: Side, tool: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Subcommands come before the address."""
    if tool == VERIFY:
        return ("--broker-list", side.bootstrap, *arguments)
    if tool == CLUSTER:
        return (arguments[0], "--bootstrap-server", side.bootstrap, *arguments[1:])
    return ("--bootstrap-server", side.bootstrap, *arguments)


@contextlib.contextmanager
def both_clusters(folder: Path) -> Iterator[Both]:
    """Raises PeerUnavailable if there is no Kafka here."""
    jars(V3)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(zookeeper(V3_8, folder / "zookeeper"))
        kafka = Side("kafka", server, "/kafka")
        stack.callback(kafka.close)
        for each in BROKER_IDS:
            directory = folder / f"kafka-{each}"
            broker = KafkaBroker(each, directory, f"{server.address}/kafka", SETTINGS)
            stack.callback(broker.kill)
            kafka.add(each, broker, directory / "data")
            broker.start()
        tools = ToolServer(folder)
        stack.callback(tools.close)
        settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
        brokers = stack.enter_context(cluster(len(BROKER_IDS), folder, server, **settings))
        ours = Side("ours", server, brokers.chroot)
        stack.callback(ours.close)
        for each in BROKER_IDS:
            ours.add(each, brokers[each], brokers[each].directory)
        for starting in kafka.brokers.values():
            starting.wait_until_ready()
        both = Both(tools, ours, kafka, folder)
        # Coordinators are on the same brokers of both clusters.
        for topic, assignment in (("__consumer_offsets", "1:2:3"), ("__transaction_state", "2:3:1")):
            create = ("--create", "--topic", topic, "--replica-assignment", assignment)
            both.same(TOPICS, *create, "--config", "cleanup.policy=compact")
        both.check()
        yield both


def produce(both: Both, topic: str, partitions: Iterable[int], count: int = 10, size_bytes: int = 10) -> None:
    """The same records to both clusters."""
    begin_ms = int(time.time() * 1000)
    for side in both.sides:
        with Producer(bootstrap_servers=side.bootstrap) as producer:
            for partition in partitions:
                for number in range(count):
                    value = f"{number:0{size_bytes}}".encode()
                    producer.send(topic, value, partition=partition, timestamp_ms=begin_ms + number)


def create(both: Both, topic: str, assignment: str, *arguments: str) -> None:
    both.same(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment, *arguments)
    both.settled(TOPICS, "--describe", "--topic", topic, shows=f"PartitionCount: {assignment.count(',') + 1}")


def partitions_of(topic: str, *replicas: list[int]) -> dict[str, Any]:
    """A plan that places the partitions of a topic."""
    found = [
        {"topic": topic, "partition": number, "replicas": each, "log_dirs": ["any"] * len(each)}
        for number, each in enumerate(replicas)
    ]
    return {"version": 1, "partitions": found}


def ordered(text: str) -> str:
    """Lines, and what they list, come in any order."""
    return "\n".join(sorted(" ".join(sorted(line.replace(",", "").split())) for line in text.splitlines()))


def described_directories(text: str) -> str:
    """Sizes depend on how records came together in batches."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("{"):
            lines.append(line)
            continue
        described = json.loads(line)
        for broker in described["brokers"]:
            for directory in broker["logDirs"]:
                directory["partitions"].sort(key=lambda each: each["partition"])
                for each in directory["partitions"]:
                    each["size"] = each["size"] > 0
        lines.append(json.dumps(described, indent=1, sort_keys=True))
    return "\n".join(lines)
