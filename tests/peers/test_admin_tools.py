"""Apache Kafka's own tools and producer against our broker: what they ask of a cluster that ZooKeeper mode has not."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest

from tests.broker.running import RunningBroker
from tests.peers.kafka_peer import V4, PeerUnavailable, jars, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.peer]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    try:
        jars(V4)
    except PeerUnavailable as why:
        pytest.skip(str(why))
    with RunningBroker(tmp_path_factory.mktemp("tools"), {"barnabas.metrics.port": "0"}) as running:
        yield running


def tool(broker: RunningBroker, main_class: str, *arguments: str) -> str:
    return run_tool(V4, main_class, "--bootstrap-server", broker.address, *arguments)


def test_scram_users(broker: RunningBroker) -> None:
    configs = "kafka.admin.ConfigCommand"
    ann = ("--entity-type", "users", "--entity-name", "ann")
    credential = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    assert "Completed updating" in tool(broker, configs, "--alter", *ann, "--add-config", credential)
    assert "'ann' are SCRAM-SHA-256=iterations=8192" in tool(broker, configs, "--describe", *ann)
    tool(broker, configs, "--alter", *ann, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM" not in tool(broker, configs, "--describe", "--entity-type", "users")


def test_acls_need_an_authorizer(broker: RunningBroker) -> None:
    with pytest.raises(AssertionError, match="No Authorizer is configured"):
        tool(broker, "org.apache.kafka.tools.AclCommand", "--list")


def test_features(broker: RunningBroker) -> None:
    told = tool(broker, "org.apache.kafka.tools.FeatureCommand", "describe")
    assert re.search(r"metadata\.version\s.*FinalizedVersionLevel: 4\.3-IV0", told)


def test_the_quorum(broker: RunningBroker) -> None:
    told = tool(broker, "org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--status")
    me = broker.server.broker.replicas.broker_id
    assert re.search(rf"LeaderId:\s+{me}\n", told)
    assert re.search(r"MaxFollowerLag:\s+0\n", told)
    told = tool(broker, "org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--replication")
    assert re.search(rf"\n{me}\s.*Leader", told)


def test_a_producer_pushes_its_metrics(broker: RunningBroker) -> None:
    """By a subscription that a tool has made; the producer's topic is created because it is used."""
    metrics = "org.apache.kafka.tools.ClientMetricsCommand"
    subscription = ("--metrics", "org.apache.kafka.producer.", "--match", "client_id=measured.*")
    tool(broker, metrics, "--alter", "--name", "producers", *subscription, "--interval", "100")
    assert "match=client_id=measured.*" in tool(broker, metrics, "--describe", "--name", "producers")
    assert tool(broker, metrics, "--list").split() == ["producers"]
    told = run_tool(
        V4,
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "automatic", "--num-records", "500", "--record-size", "100", "--throughput", "250"),
        *("--command-property", f"bootstrap.servers={broker.address}", "client.id=measured-1"),
    )
    assert "500 records sent" in told
    url = f"http://127.0.0.1:{broker.server.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    [sent] = [line for line in lines if 'metric="org.apache.kafka.producer.record.send.total"' in line]
    assert 'client_id="measured-1"' in sent
    # The last push, of a producer that closes, may get lost.
    assert 0 < float(sent.rpartition(" ")[2]) <= 500
    assert 'kafka_server_client_metrics_push_count{result="refused"} 0' in lines
