"""Brokers that may not start: one clear line each, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.security import make_digest_acl

from barnabas.testing import free_port
from tests.cluster.clusters import Cluster, ClusterBroker, cluster
from tests.peers.zookeeper_peer import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.peer]

WAIT_S = 90
FAILED = 1


def refusal(broker: ClusterBroker) -> str:
    """The one line with which a broker refuses to start."""
    broker.begin_start()
    try:
        assert broker.wait(WAIT_S) == FAILED, broker.log_text()
    finally:
        broker.kill()
    text = broker.log_text()
    assert "Traceback" not in text
    assert "bug in barnabas" not in text
    [line] = [line for line in text.splitlines() if line.startswith("barnabas: ")]
    return line


def other_directory(brokers: Cluster, broker_id: int, **overrides: object) -> ClusterBroker:
    """A broker with an id that is in use, and log directories of its own."""
    broker = brokers.add(broker_id, **overrides)
    broker.directory = broker.directory.with_name("another")
    broker.log_file = broker.directory.with_suffix(".log")
    return broker


def test_a_broker_id_in_use(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(1, tmp_path, zookeeper) as brokers:
        first = brokers[1]
        try:
            line = refusal(other_directory(brokers, 1))
            assert "Error while creating ephemeral at /brokers/ids/1, node already exists and owner" in line
            assert (
                f"broker id 1 is in use by a broker at PLAINTEXT://{first.address}. Stop it, or give" in line
            )
            assert sorted(brokers.tree.get_children("/brokers/ids")) == ["1"]
        finally:
            first.kill()


def test_addresses_of_another_broker(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(1, tmp_path, zookeeper) as brokers:
        taken = brokers[1].address
        line = refusal(brokers.add(2, advertised_listeners=f"PLAINTEXT://{taken}"))
        assert (
            f"Configured end points {taken} in advertised listeners are already registered by broker 1"
            in line
        )
        assert brokers.broker_epoch(2) is None


def test_log_directories_of_another_broker_or_cluster(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(1, tmp_path, zookeeper) as brokers:
        assert brokers[1].stop() == 0
        brokers[1].overrides["broker.id"] = "2"
        line = refusal(brokers[1])
        assert "broker.id is 2, but the log directories belong to broker 1" in line
        brokers[1].overrides["broker.id"] = "1"

        cluster_id = brokers.node("/cluster/id")["id"]
        brokers.tree.set("/cluster/id", b'{"version":"1","id":"another-cluster-here00"}')
        line = refusal(brokers[1])
        assert f"The Cluster ID another-cluster-here00 doesn't match stored clusterId {cluster_id}" in line
        assert "zookeeper.connect may be wrong" in line

        brokers[1].overrides["zookeeper.connect"] = f"{zookeeper.address}/elsewhere"
        line = refusal(brokers[1])
        assert (
            f"The log directories belong to cluster {cluster_id}, but ZooKeeper has no cluster there" in line
        )
        assert brokers.broker_epoch(1) is None


def test_no_zookeeper(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(0, tmp_path, zookeeper) as brokers:
        address = f"127.0.0.1:{free_port()}"
        broker = brokers.add(1, zookeeper_connect=address, zookeeper_connection_timeout_ms=500)
        line = refusal(broker)
        assert f"no ZooKeeper server of {address} answered within 500 ms (zookeeper.connect" in line
        assert not list(broker.directory.glob("meta.properties"))


@pytest.mark.parametrize("digest", [None, "barnabas:wrong"])
def test_credentials_that_zookeeper_does_not_accept(
    tmp_path: Path, zookeeper: ZooKeeperServer, digest: str | None
) -> None:
    with cluster(0, tmp_path, zookeeper) as brokers:
        protected = [make_digest_acl("barnabas", "secret", all=True)]
        brokers.tree.create("/cluster", b"", acl=protected, makepath=True)
        settings = {} if digest is None else {"barnabas_zookeeper_digest": digest}
        line = refusal(brokers.add(1, **settings))
        assert "ZooKeeper does not let this broker use" in line
        assert "check its credentials and the ACL" in line


def test_acls_with_credentials(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with cluster(0, tmp_path, zookeeper) as brokers:
        line = refusal(brokers.add(1, zookeeper_set_acl=True))
        assert "zookeeper.set.acl is true, but nothing identifies this broker to ZooKeeper" in line
        broker = brokers.add(1, zookeeper_set_acl=True, barnabas_zookeeper_digest="barnabas:secret")
        broker.start()
        acls, _ = brokers.tree.get_acls("/brokers/topics")
        assert sorted((each.id.scheme, each.perms) for each in acls) == [("digest", 31), ("world", 1)]
        assert "secret" not in broker.log_text()
        assert broker.stop() == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"zookeeper_connect": "host:1//x"}, "Invalid value host:1//x for configuration zookeeper.connect"),
        ({"barnabas_zookeeper_digest": "nobody"}, "barnabas.zookeeper.digest takes user:password"),
        (
            {"zookeeper_ssl_client_enable": True, "zookeeper_ssl_truststore_location": "trust.jks"},
            "Invalid value JKS for configuration zookeeper.ssl.truststore.type",
        ),
        (
            {"zookeeper_ssl_client_enable": True, "zookeeper_ssl_keystore_location": "none.pem"},
            "zookeeper.ssl.keystore.location takes a file that exists",
        ),
        ({"inter_broker_protocol_version": "2.0"}, "configuration inter.broker.protocol.version"),
    ],
)
def test_settings_that_do_not_fit(
    tmp_path: Path, zookeeper: ZooKeeperServer, settings: dict[str, object], reason: str
) -> None:
    with cluster(0, tmp_path, zookeeper) as brokers:
        assert reason in refusal(brokers.add(1, **settings))
