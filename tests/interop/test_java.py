"""Java's own clients and console tools, of the last release with ZooKeeper and of a new one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.interop.programs import HERE, available, java, java_source, patient, run
from tests.peers.kafka_peer import V3, V4

PRODUCER = {V3: "kafka.tools.ConsoleProducer", V4: "org.apache.kafka.tools.ConsoleProducer"}
VERSIONS_COMMAND = {
    V3: "kafka.admin.BrokerApiVersionsCommand",
    V4: "org.apache.kafka.tools.BrokerApiVersionsCommand",
}


@pytest.fixture(params=[V3, V4])
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


class Tools:
    def __init__(self, broker: BrokerProcess, version: str) -> None:
        self._broker = broker
        self.version = version

    def run(self, main_class: str, *arguments: str, stdin: str = "") -> str:
        command = available(lambda: java(self.version, main_class))
        return run([*command, "--bootstrap-server", self._broker.address, *arguments], stdin=stdin)

    def topics(self, *arguments: str) -> str:
        return self.run("org.apache.kafka.tools.TopicCommand", *arguments)


@pytest.fixture
def tools(broker: BrokerProcess, version: str) -> Tools:
    return Tools(broker, version)


def test_clients(broker: BrokerProcess, version: str) -> None:
    command = available(lambda: java_source(version, HERE / "java" / "AdminProbe.java"))
    printed = run([*command, broker.address, f"java-{version}"])
    assert printed.endswith("all steps hold\n")


def test_console_producer_and_consumer(tools: Tools) -> None:
    topic = f"console-{tools.version}"
    lines = [f"key-{number}:value-{number}" for number in range(100)]
    producing = ["--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:"]
    tools.run(
        PRODUCER[tools.version], *producing, "--compression-codec", "zstd", stdin="\n".join(lines) + "\n"
    )
    printed = tools.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "100"),
        *("--timeout-ms", "60000", "--property", "print.key=true", "--property", "key.separator=:"),
    )
    # Newer tools say first that an option will have another name one day.
    assert [line for line in printed.splitlines() if line.startswith("key-")] == lines


def test_topic_command(tools: Tools) -> None:
    topic = f"topics-{tools.version}"
    tools.topics("--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=1000000")
    described = tools.topics("--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert "retention.ms=1000000" in described
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tools.topics("--describe", "--topic", topic)
    assert tools.topics("--describe", "--unavailable-partitions").strip() == ""
    tools.topics("--delete", "--topic", topic)
    assert topic not in tools.topics("--list").splitlines()


def test_settings_and_quotas(tools: Tools) -> None:
    topic = f"settings-{tools.version}"
    tools.topics("--create", "--topic", topic)
    command = "kafka.admin.ConfigCommand"
    of_topic = ["--entity-type", "topics", "--entity-name", topic]
    tools.run(command, *of_topic, "--alter", "--add-config", "segment.bytes=2000000")
    assert "segment.bytes=2000000" in tools.run(command, *of_topic, "--describe")
    assert "retention.ms=604800000" in tools.run(command, *of_topic, "--describe", "--all")
    tools.run(command, *of_topic, "--alter", "--delete-config", "segment.bytes")
    assert "segment.bytes=2000000" not in tools.run(command, *of_topic, "--describe")
    of_client = ["--entity-type", "clients", "--entity-name", topic]
    tools.run(command, *of_client, "--alter", "--add-config", "consumer_byte_rate=2000000")
    assert "consumer_byte_rate=2000000" in tools.run(command, *of_client, "--describe")
    tools.run(command, *of_client, "--alter", "--delete-config", "consumer_byte_rate")


def test_offsets_records_directories_and_leaders(tools: Tools, tmp_path: Path) -> None:
    topic = f"offsets-{tools.version}"
    tools.topics("--create", "--topic", topic)
    tools.run(PRODUCER[tools.version], "--topic", topic, stdin="a\nb\nc\n")
    offsets = "org.apache.kafka.tools.GetOffsetShell"
    assert tools.run(offsets, "--topic", topic, "--time", "latest").strip() == f"{topic}:0:3"
    # Which of the three it is depends on how fast they were produced.
    assert tools.run(offsets, "--topic", topic, "--time", "max-timestamp").startswith(f"{topic}:0:")
    file = tmp_path / "records.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 2}], "version": 1}))
    deleted = tools.run("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(file))
    assert "low_watermark: 2" in deleted
    assert tools.run(offsets, "--topic", topic, "--time", "earliest").strip() == f"{topic}:0:2"

    printed = tools.run("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", topic)
    [described] = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    partitions = [
        each for directory in described["brokers"][0]["logDirs"] for each in directory["partitions"]
    ]
    assert [each["partition"] for each in partitions] == [f"{topic}-0"]
    election = tools.run(
        "org.apache.kafka.tools.LeaderElectionCommand",
        *("--election-type", "preferred", "--topic", topic, "--partition", "0"),
    )
    assert "Valid replica already elected for partitions" in election
    listing = tools.run("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--list")
    assert "No partition reassignments found" in listing


def test_cluster_and_versions(tools: Tools, tmp_path: Path) -> None:
    command = available(lambda: java(tools.version, "org.apache.kafka.tools.ClusterTool"))
    printed = run([*command, "cluster-id", "--bootstrap-server", tools._broker.address])
    assert printed.startswith("Cluster ID: ")
    printed = tools.run(VERSIONS_COMMAND[tools.version], *patient(tmp_path))
    assert "Produce(0): 0 to " in printed
    assert "ERROR" not in printed


def test_idempotent_load(tools: Tools) -> None:
    topic = f"load-{tools.version}"
    printed = tools.run(
        "org.apache.kafka.tools.VerifiableProducer",
        *("--topic", topic, "--max-messages", "20000", "--acks", "-1"),
    )
    said = [json.loads(line) for line in printed.splitlines()]
    assert sum(each["name"] == "producer_send_success" for each in said) == 20_000
    assert not [each for each in said if each["name"] == "producer_send_error"]
