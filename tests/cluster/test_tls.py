"""TLS to ZooKeeper, with PEM files on both sides: the broker's certificate is its identity."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient

from barnabas.testing import Broker, free_port
from tests.cluster.clusters import cluster, require_zookeeper
from tests.cluster.test_refusals import refusal
from tests.peers import zookeeper_peer
from tests.peers.zookeeper_peer import ZooKeeperServer

pytestmark = [pytest.mark.slow, pytest.mark.peer]


class Certificates(NamedTuple):
    # A private key and its certificate, which is its own authority.
    own: Path
    trusted: Path


def new_certificates(folder: Path, name: str) -> Certificates:
    key, certificate, own = (folder / f"{name}{end}" for end in ("-key.pem", "-trusted.pem", ".pem"))
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
    ]
    subprocess.run(
        [*command, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
        timeout=60,
    )
    own.write_bytes(key.read_bytes() + certificate.read_bytes())
    return Certificates(own, certificate)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("certificates need the program openssl")
    return new_certificates(tmp_path_factory.mktemp("certificates"), "cluster")


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[tuple[ZooKeeperServer, int]]:
    """A server, and the port on which it speaks TLS."""
    require_zookeeper()
    port = free_port()
    settings = {
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        "ssl.keyStore.location": certificates.own,
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": certificates.trusted,
        "ssl.trustStore.type": "PEM",
    }
    folder = tmp_path_factory.mktemp("zookeeper")
    with zookeeper_peer.zookeeper(zookeeper_peer.V3_8, folder, settings) as running:
        yield running, port


def pkcs12(pem: Path, *options: str) -> Path:
    made = pem.with_name(f"{pem.stem}-store.p12")
    subprocess.run(
        [
            "openssl",
            "pkcs12",
            "-export",
            "-in",
            str(pem),
            "-out",
            str(made),
            "-passout",
            "pass:secret",
            *options,
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return made


def test_a_single_node_moves_to_zookeeper_with_tls(
    tmp_path: Path, secure: tuple[ZooKeeperServer, int], certificates: Certificates
) -> None:
    server, port = secure
    directory = tmp_path / "broker-1"
    with Broker(directory=directory, broker_id=1, topics={"orders": 2}):
        pass
    with cluster(0, tmp_path, server) as brokers:
        tls = {
            "zookeeper.connect": f"127.0.0.1:{port}{brokers.chroot}",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(certificates.trusted),
            "zookeeper.ssl.keystore.location": str(certificates.own),
        }
        file = tmp_path / "server.properties"
        lines = {"log.dirs": str(directory), **tls}
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        command = [sys.executable, "-m", "barnabas", "cluster", "migrate", str(file)]
        moved = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert moved.returncode == 0, moved.stderr
        assert brokers.node("/brokers/topics/orders")["partitions"].keys() == {"0", "1"}
        broker = brokers.add(1, **{name.replace(".", "_"): value for name, value in tls.items()})
        broker.start()
        brokers.wait_for_topic("orders", partitions=2)
        assert broker.stop() == 0


def test_the_line_that_refuses_pkcs12_says_how_to_convert_it(
    tmp_path: Path, secure: tuple[ZooKeeperServer, int], certificates: Certificates
) -> None:
    server, port = secure
    stores = {
        "keystore": pkcs12(certificates.own),
        "truststore": pkcs12(certificates.trusted, "-nokeys"),
    }
    with cluster(0, tmp_path, server) as brokers:
        settings: dict[str, object] = {
            "zookeeper_connect": f"127.0.0.1:{port}{brokers.chroot}",
            "zookeeper_ssl_client_enable": True,
            "zookeeper_ssl_truststore_location": certificates.trusted,
            "zookeeper_ssl_keystore_location": certificates.own,
        }
        for name, store in stores.items():
            setting = f"zookeeper_ssl_{name}_location"
            line = refusal(brokers.add(1, **{**settings, setting: store}))
            assert f"zookeeper.ssl.{name}.type" in line
            command = line.split("`")[1].split()
            assert command[:2] == ["openssl", "pkcs12"]
            subprocess.run([*command, "-passin", "pass:secret"], check=True, capture_output=True, timeout=60)
            settings[setting] = store.with_suffix(".pem")
        broker = brokers.add(1, **settings)
        broker.start()
        assert broker.stop() == 0


def test_a_broker_speaks_tls_to_zookeeper(
    tmp_path: Path, secure: tuple[ZooKeeperServer, int], certificates: Certificates
) -> None:
    server, port = secure
    with cluster(0, tmp_path, server) as brokers:
        settings = {
            "zookeeper_connect": f"127.0.0.1:{port}{brokers.chroot}",
            "zookeeper_ssl_client_enable": True,
            "zookeeper_ssl_truststore_location": certificates.trusted,
            "zookeeper_ssl_keystore_location": certificates.own,
            "zookeeper_set_acl": True,
        }
        broker = brokers.add(1, **settings)
        broker.start()
        tree: KazooClient = brokers.tree
        acls, _ = tree.get_acls("/brokers/topics")
        assert sorted((each.id.scheme, each.id.id) for each in acls) == [
            ("world", "anyone"),
            ("x509", "CN=cluster"),
        ]
        brokers.wait_for_controller()
        assert broker.stop() == 0

        stranger = new_certificates(tmp_path, "stranger")
        settings["zookeeper_ssl_truststore_location"] = stranger.trusted
        line = refusal(brokers.add(1, **settings, zookeeper_connection_timeout_ms=3_000))
        assert f"no ZooKeeper server of 127.0.0.1:{port} answered within 3000 ms" in line
        assert "certificate verify failed" in line
