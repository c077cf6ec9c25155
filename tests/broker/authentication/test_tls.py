"""TLS of a listener, with Python's own client."""

from __future__ import annotations

import base64
import datetime
import gc
import os
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.requests.session import ClientSession
from barnabas.config.listeners import SecurityProtocol
from barnabas.errors import InvalidConfig
from barnabas.net.tls_handshakes import HALF_OPEN_MAX
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.requests import decode_response, encode_request
from barnabas.security.dev_certificates import dev_certificates
from barnabas.security.jaas import PLAIN
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import create_topic
from tests.broker.running import RunningBroker
from tests.security.certificates import (
    HOSTS,
    certificates,
    other_certificates,
    tls_settings_of,
    write_certificates,
)
from tests.waiting import Deadline

WAIT_S = 60
HALF_OPEN = 10_000 if os.environ.get("BARNABAS_SOAK") == "1" else HALF_OPEN_MAX + 500
BROKER_RESOURCE = 4
INVALID_REQUEST = 42
SETTINGS = {
    "listeners": "SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,ASKING://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "SSL:SSL,MUTUAL:SSL,ASKING:SSL,PLAINTEXT:PLAINTEXT",
    "listener.name.mutual.ssl.client.auth": "required",
    "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(a.*)$/$1/U",
    "listener.name.asking.ssl.client.auth": "requested",
    "barnabas.tls.handshake.timeout.ms": "60000",
    # A connection that finds no room tries again after a second.
    "socket.listen.backlog.size": "2000",
}


class TlsClient(RawClient):
    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        # The socket that it wraps closes with it, also if the handshake fails.
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")

    @property
    def secured(self) -> ssl.SSLSocket:
        assert isinstance(self._socket, ssl.SSLSocket)
        return self._socket


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[RunningBroker]:
    settings = {**SETTINGS, **tls_settings_of(folder)}
    with RunningBroker(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


def context_for(folder: Path, user: str | None = None, authority: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority or certificates()["ca"])
    if user is not None:
        context.load_cert_chain(folder / f"{user}.pem")
    return context


def connect(broker: RunningBroker, folder: Path, listener: str = "SSL", user: str | None = None) -> TlsClient:
    return TlsClient(broker.server.ports[listener], context_for(folder, user))


def served(client: RawClient) -> bool:
    return bool(client.ask("Metadata", 9, MetadataRequest(topics=[])).brokers)


def principals(listener: str) -> set[str]:
    """Of the clients that are or were connected: the broker runs in this process."""
    sessions = [each for each in gc.get_objects() if isinstance(each, ClientSession)]
    return {str(each.principal) for each in sessions if each.listener == listener}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests(broker: RunningBroker, folder: Path, version: ssl.TLSVersion) -> None:
    context = context_for(folder)
    context.minimum_version = context.maximum_version = version
    with TlsClient(broker.server.ports["SSL"], context) as client:
        assert served(client)
        assert served(client)
        assert client.secured.version() == version.name.replace("_", ".")
        assert principals("SSL") == {"User:ANONYMOUS"}


def versions_frame(correlation_id: int) -> bytes:
    request = encode_request(api_for_name("ApiVersions"), 0, correlation_id, "test", ApiVersionsRequest())
    return struct.pack(">i", len(request)) + request


def correlation_ids(client: RawClient, count: int) -> list[int]:
    api = api_for_name("ApiVersions")
    return [decode_response(api, 0, client.receive_frame()).header.correlation_id for _ in range(count)]


def test_many_requests_in_one_tls_record(broker: RunningBroker, folder: Path) -> None:
    """OpenSSL decrypts them all at once, and no event comes for those that are not read at once."""
    with connect(broker, folder) as client:
        for count in (1, 2, 300, 5):
            client.send_bytes(b"".join(map(versions_frame, range(count))))
            assert correlation_ids(client, count) == list(range(count))


@pytest.mark.parametrize("step", [1, 7])
def test_a_request_byte_by_byte(broker: RunningBroker, folder: Path, step: int) -> None:
    with connect(broker, folder) as client:
        data = versions_frame(1) + versions_frame(2)
        for position in range(0, len(data), step):
            client.send_bytes(data[position : position + step])
        assert correlation_ids(client, 2) == [1, 2]


def test_a_large_frame_and_a_small_one_behind_it(broker: RunningBroker, folder: Path) -> None:
    """Most of the large frame is received by itself, in pieces that are smaller than a TLS record."""
    with connect(broker, folder) as client:
        for size in (20_000, 70_001, 300_000):
            # Bytes behind a request are ignored.
            padded = versions_frame(1)[4:] + bytes(size)
            client.send_bytes(struct.pack(">i", len(padded)) + padded + versions_frame(2))
            assert correlation_ids(client, 2) == [1, 2]


@pytest.mark.slow
def test_records_in_both_directions(broker: RunningBroker, folder: Path, tmp_path: Path) -> None:
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.producer.producer import Producer

    with broker.client() as client:
        create_topic(client, "large", 1)
    settings = {
        "bootstrap.servers": f"127.0.0.1:{broker.server.ports['SSL']}",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    values = [os.urandom(size) for size in (1, 100, 16_383, 16_384, 16_385, 500_000, 900_000)] * 3
    with Producer(settings) as producer:
        for value in values:
            producer.send("large", value=value)
    with Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("large", 0)])
        found: list[Any] = []
        deadline = Deadline(WAIT_S)
        while len(found) < len(values):
            found += consumer.poll(1_000)
            deadline.check("not all records came")
    assert [each.value for each in found] == values


def test_a_certificate_is_required(broker: RunningBroker, folder: Path) -> None:
    with connect(broker, folder, "MUTUAL", "ann") as client:
        assert served(client)
        assert principals("MUTUAL") == {"User:ANN"}
    with pytest.raises((ssl.SSLError, ConnectionError)), connect(broker, folder, "MUTUAL") as client:
        served(client)


def test_no_rule_matches_the_certificate(broker: RunningBroker, folder: Path) -> None:
    with connect(broker, folder, "MUTUAL", "bob") as client:
        assert client.is_closed_by_broker()


def test_a_certificate_is_requested(broker: RunningBroker, folder: Path) -> None:
    with connect(broker, folder, "ASKING", "ann") as client, connect(broker, folder, "ASKING") as other:
        assert served(client)
        assert served(other)
        assert principals("ASKING") == {"User:CN=ann", "User:ANONYMOUS"}


def test_a_certificate_of_another_authority(broker: RunningBroker, folder: Path, tmp_path: Path) -> None:
    write_certificates(tmp_path, other_certificates())
    context = context_for(tmp_path, "ann")
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        TlsClient(broker.server.ports["MUTUAL"], context) as client,
    ):
        served(client)


def test_old_protocols_are_refused(broker: RunningBroker, folder: Path) -> None:
    context = context_for(folder)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError), TlsClient(broker.server.ports["SSL"], context):
        pass


def s_client(broker: RunningBroker, *options: str, said: str = "") -> str:
    """What OpenSSL's own client prints: it can do what Python's cannot."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the program openssl")
    address = f"127.0.0.1:{broker.server.ports['SSL']}"
    done = subprocess.run(
        ["openssl", "s_client", "-connect", address, *options],
        input=said,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=WAIT_S,
        check=False,
    )
    return done.stdout + done.stderr


def test_renegotiation_is_refused(broker: RunningBroker, folder: Path) -> None:
    """A client could otherwise keep the broker busy with handshakes on one connection."""
    printed = s_client(broker, "-tls1_2", said="R\n")
    assert "RENEGOTIATING" in printed
    assert "no renegotiation" in printed
    with connect(broker, folder) as healthy:
        assert served(healthy)


def test_a_fallback_to_an_older_protocol_is_refused(broker: RunningBroker) -> None:
    """As after somebody on the network has made the handshake with a newer one fail (RFC 7507)."""
    assert "inappropriate fallback" in s_client(broker, "-tls1_2", "-fallback_scsv")
    assert "inappropriate fallback" not in s_client(broker, "-tls1_2")


def test_a_client_without_tls(broker: RunningBroker) -> None:
    with RawClient(broker.server.ports["SSL"]) as client:
        client.send("Metadata", 9, MetadataRequest(topics=[]))
        assert client.is_closed_by_broker()


def first_flight(folder: Path) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    machine = context_for(folder).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        machine.do_handshake()
    return machine, incoming, outgoing


@pytest.mark.slow
def test_handshakes_that_are_cut_at_every_byte(broker: RunningBroker, folder: Path) -> None:
    address = ("127.0.0.1", broker.server.ports["SSL"])
    hello = first_flight(folder)[2].read()
    for size in range(len(hello)):
        with socket.create_connection(address, timeout=WAIT_S) as client:
            client.sendall(hello[:size])
    size = 0
    while True:
        machine, incoming, outgoing = first_flight(folder)
        with socket.create_connection(address, timeout=WAIT_S) as client:
            client.sendall(outgoing.read())
            while not is_complete(machine, incoming, client):
                pass
            flight = outgoing.read()
            client.sendall(flight[:size])
            if size == len(flight):
                break
            size += 1
    with connect(broker, folder) as healthy:
        assert served(healthy)


def is_complete(machine: ssl.SSLObject, incoming: ssl.MemoryBIO, client: socket.socket) -> bool:
    incoming.write(client.recv(100_000))
    try:
        machine.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def test_a_slow_handshake_ends(tmp_path: Path, folder: Path) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "barnabas.tls.handshake.timeout.ms": "100",
        **tls_settings_of(folder),
    }
    with RunningBroker(tmp_path / "data", settings) as broker:
        for sent in (b"", b"\x16\x03\x01"):
            with socket.create_connection(
                ("127.0.0.1", broker.server.ports["SSL"]), timeout=WAIT_S
            ) as client:
                client.sendall(sent)
                assert client.recv(1) == b""
        with connect(broker, folder) as healthy:
            assert served(healthy)


@pytest.mark.slow
def test_thousands_of_half_open_handshakes(broker: RunningBroker, folder: Path) -> None:
    """The oldest ends for each that is too many, and clients that complete their handshakes are served."""
    address = ("127.0.0.1", broker.server.ports["SSL"])
    # The broker runs in this process too, and keeps no more than its maximum.
    needed = HALF_OPEN + HALF_OPEN_MAX + 2_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"needs {needed} file descriptors (ulimit -Hn), and there are {hard}")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    hello = first_flight(folder)[2].read()
    half_open = []
    try:
        for number in range(HALF_OPEN):
            half_open.append(socket.create_connection(address, timeout=WAIT_S))
            # Some send nothing, some a part of a hello, some a whole one.
            half_open[-1].sendall(hello[: (0, len(hello) // 2, len(hello))[number % 3]])
            if number % 250 == 0:
                with connect(broker, folder) as healthy:
                    assert served(healthy)
        for ended in half_open[: HALF_OPEN - HALF_OPEN_MAX]:
            while ended.recv(100_000):
                pass
        with connect(broker, folder) as healthy:
            assert served(healthy)
    finally:
        for each in half_open:
            each.close()


def served_certificate(broker: RunningBroker, listener: str = "SSL") -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with TlsClient(broker.server.ports[listener], context) as client:
        return client.secured.getpeercert(True) or b""


def der(texts: Mapping[str, str]) -> bytes:
    chain = texts["server"].partition("-----END PRIVATE KEY-----\n")[2]
    return ssl.PEM_cert_to_DER_cert(chain[: chain.index("-----END CERTIFICATE-----") + 26])


@pytest.mark.slow
def test_certificates_that_change_on_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A change is seen at most a second later; files that cannot be used change nothing."""
    write_certificates(tmp_path)
    settings = {"listeners": "SSL://127.0.0.1:0", **tls_settings_of(tmp_path)}
    with RunningBroker(tmp_path / "data", settings) as broker:
        assert served_certificate(broker) == der(certificates())
        (tmp_path / "server.pem").write_text("nonsense")
        later = other_certificates()
        deadline = Deadline(WAIT_S)
        while "keeps its certificates" not in caplog.text:
            assert served_certificate(broker) == der(certificates())
            deadline.check(lambda: "the new file was not seen")
        write_certificates(tmp_path, later)
        while served_certificate(broker) != der(later):
            deadline.check(lambda: "the new certificate is not used")


def test_certificates_that_change_by_settings(broker: RunningBroker, folder: Path, tmp_path: Path) -> None:
    later = other_certificates()
    write_certificates(tmp_path, later)
    name = "listener.name.asking.ssl.keystore.location"
    assert set_broker_config(broker, name, str(tmp_path / "server.pem")) is None
    assert served_certificate(broker, "ASKING") == der(later)
    assert served_certificate(broker) == der(certificates())
    assert set_broker_config(broker, name, None) is None
    assert served_certificate(broker, "ASKING") == der(certificates())


MORE_HOSTS = (*HOSTS, "other")
FEWER_HOSTS = HOSTS[:1]
OTHER_NAME = ("other", *HOSTS)


def write_server_certificate(folder: Path, hosts: tuple[str, ...]) -> str:
    path = folder / f"{'-'.join(hosts)}.pem"
    path.write_text(dev_certificates(hosts, (), datetime.datetime.now(datetime.UTC))["server"])
    return str(path)


def test_which_certificates_settings_may_change(tmp_path: Path, folder: Path) -> None:
    """The same decisions as those of Apache Kafka 4.3.1: clients know the broker by the names in its certificate."""
    prefix = "listener.name.ssl."
    settings = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,LAX://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,PLAINTEXT:PLAINTEXT,LAX:SSL",
        "listener.name.lax.ssl.allow.dn.changes": "true",
        "listener.name.lax.ssl.allow.san.changes": "true",
        **{name: text for name, text in tls_settings_of(folder).items() if "keystore" in name},
    }
    (tmp_path / "bad.pem").write_text("nonsense")
    location = f"{prefix}ssl.keystore.location"
    with RunningBroker(tmp_path / "data", settings) as broker:
        for changes, says in (
            ({location: write_server_certificate(tmp_path, MORE_HOSTS)}, None),
            ({location: write_server_certificate(tmp_path, FEWER_HOSTS)}, "SubjectAltNames do not match"),
            ({location: write_server_certificate(tmp_path, OTHER_NAME)}, "DistinguishedName does not match"),
            ({location: str(tmp_path / "none.pem")}, "cannot be read"),
            ({location: str(tmp_path / "bad.pem")}, "bad.pem"),
            # Of the new names one is missing in the certificate of the start.
            ({location: None}, "SubjectAltNames do not match"),
            ({f"{prefix}ssl.truststore.location": str(folder / "ca.pem")}, "Cannot add SSL truststore"),
        ):
            refusal = set_broker_configs(broker, changes)
            assert (refusal is None) == (says is None), refusal
            assert says is None or says in str(refusal)
            assert served_certificate(broker) == first_certificate(tmp_path / "localhost-127.0.0.1-other.pem")
        for hosts in (FEWER_HOSTS, OTHER_NAME):
            path = write_server_certificate(tmp_path, hosts)
            assert set_broker_config(broker, "listener.name.lax.ssl.keystore.location", path) is None
            assert served_certificate(broker, "LAX") == first_certificate(Path(path))


def first_certificate(path: Path) -> bytes:
    return der({"server": path.read_text()})


def set_broker_config(broker: RunningBroker, name: str, value: str | None) -> str | None:
    return set_broker_configs(broker, {name: value})


def set_broker_configs(broker: RunningBroker, changes: Mapping[str, str | None]) -> str | None:
    """The reason why the broker refuses the change, if it does."""
    configs = [
        AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
        for name, value in changes.items()
    ]
    resource = AlterConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name=str(broker.server.broker.replicas.broker_id),
        configs=configs,
    )
    with broker.client() as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        [answer] = client.ask("IncrementalAlterConfigs", 1, request).responses
    assert answer.error_code in (0, INVALID_REQUEST)
    return str(answer.error_message) if answer.error_code else None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ssl.keystore.location": "/nowhere/server.pem"}, "cannot be read"),
        (
            {"ssl.client.auth": "required", "ssl.truststore.location": ""},
            "ssl.truststore.location is missing",
        ),
        ({"ssl.principal.mapping.rules": "nonsense"}, "ssl.principal.mapping.rules"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, folder: Path, change: dict[str, str], says: str
) -> None:
    settings = {"listeners": "SSL://127.0.0.1:0", **tls_settings_of(folder), **change}
    running = RunningBroker(tmp_path / "data", settings)
    with pytest.raises(InvalidConfig, match=says):
        running.start()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "gssapi.sasl.jaas.config is missing: .* set sasl.enabled.mechanisms to SCRAM-SHA-512"),
        ({"sasl.enabled.mechanisms": "X"}, "sasl.enabled.mechanisms=X: the mechanism X is not supported"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "plain.sasl.jaas.config is missing"),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} required;",
            },
            "names no user",
        ),
    ],
)
def test_sasl_that_cannot_be_used_is_refused(tmp_path: Path, settings: dict[str, str], says: str) -> None:
    listeners = f"{SecurityProtocol.SASL_PLAINTEXT}://127.0.0.1:0"
    running = RunningBroker(tmp_path / "data", {"listeners": listeners, **settings})
    with pytest.raises(InvalidConfig, match=says):
        running.start()


@pytest.mark.parametrize(("mode", "is_told"), [(0o644, True), (0o640, False), (0o600, False)])
def test_a_key_that_others_can_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, is_told: bool
) -> None:
    write_certificates(tmp_path)
    (tmp_path / "server.pem").chmod(mode)
    with RunningBroker(tmp_path / "data", {"listeners": "SSL://127.0.0.1:0", **tls_settings_of(tmp_path)}):
        assert ("can be read by all users" in caplog.text) == is_told


def test_metrics_with_tls_and_a_password(tmp_path: Path, folder: Path) -> None:
    settings = {
        "barnabas.metrics.port": "0",
        "barnabas.metrics.credentials": "ann:secret",
        "barnabas.metrics.keystore.location": str(folder / "server.pem"),
    }
    with RunningBroker(tmp_path / "data", settings) as broker:
        url = f"https://127.0.0.1:{broker.server.metrics_port}/metrics"
        request = urllib.request.Request(url)
        request.add_header("Authorization", "Basic " + base64.b64encode(b"ann:secret").decode())
        with urllib.request.urlopen(request, timeout=WAIT_S, context=context_for(folder)) as answer:
            assert b"kafka_" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(url, timeout=WAIT_S, context=context_for(folder))
        refused.value.close()


def test_new_certificates_for_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_certificates(tmp_path) / "server.pem"
    other = tmp_path / "other"
    other.mkdir()
    path.chmod(0o644)
    settings = {"barnabas.metrics.port": "0", "barnabas.metrics.keystore.location": str(path)}
    with RunningBroker(tmp_path / "data", settings) as broker:
        assert "can be read by all users" in caplog.text
        address = ("127.0.0.1", broker.server.metrics_port)
        before = ssl.get_server_certificate(address, timeout=WAIT_S)
        shutil.copy(write_certificates(other, other_certificates()) / "server.pem", path)
        deadline = Deadline(WAIT_S)
        while ssl.get_server_certificate(address, timeout=WAIT_S) == before:
            deadline.check("the endpoint keeps its certificate")


@pytest.mark.parametrize(("host", "is_told"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_password_for_metrics_without_tls(
    tmp_path: Path, host: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "barnabas.metrics.port": "0",
        "barnabas.metrics.host": host,
        "barnabas.metrics.credentials": "a:b",
    }
    with RunningBroker(tmp_path, settings):
        assert ("goes over the network without TLS" in caplog.text) == is_told


def test_handshakes_are_counted(tmp_path: Path, folder: Path) -> None:
    """Those that succeed and those that are refused. A client that leaves has not failed."""
    settings = {**SETTINGS, **tls_settings_of(folder)}
    with RunningBroker(tmp_path / "data", settings) as broker:
        with connect(broker, folder, "MUTUAL", "ann") as client:
            assert served(client)
        for user in (None, "bob"):
            with (
                pytest.raises((ConnectionError, ssl.SSLError)),
                connect(broker, folder, "MUTUAL", user) as client,
            ):
                served(client)
        address = ("127.0.0.1", broker.server.ports["MUTUAL"])
        with socket.create_connection(address, timeout=WAIT_S) as leaving:
            leaving.sendall(b"\x16\x03\x01")
        with connect(broker, folder, "MUTUAL", "ann") as client:
            assert served(client)
        text = broker.server.broker.metrics.render()
        for name, count in (
            ("successful_authentication_total", 2),
            ("successful_authentication_no_reauth_total", 2),
            ("failed_authentication_total", 2),
        ):
            assert f'kafka_server_socketservermetrics_{name}{{listener="MUTUAL"}} {count}\n' in text
