"""Our clients with TLS and SASL against Apache Kafka 4.3.1, and what both brokers say to the same messages."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import barnabas
from barnabas.client.admin.results import ScramMechanism
from barnabas.errors import KafkaError, SaslAuthenticationFailed
from barnabas.net.tls_handshakes import TlsRefused
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from barnabas.protocol.messages.heartbeat_request import HeartbeatRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from barnabas.security.scram import ScramClient
from barnabas.testing import free_port
from tests.broker.authentication.test_delegation_tokens import create, described, expire, log_in, renew
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker
from tests.client.consumer_servers import KafkaProcess
from tests.peers.kafka_peer import V4, PeerUnavailable
from tests.security.certificates import tls_settings_of, write_certificates
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

WAIT_S = 60
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = {
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ann="secret";',
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required user_ann="secret" user_bob="hush" user_eve="mute";'
    ),
    **{
        f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;"
        for listener in ("sasl_ssl", "sasl_plaintext")
        for mechanism in MECHANISMS[1:]
    },
    # Sessions with this mechanism have an end.
    "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": "600000",
    "ssl.client.auth": "required",
    "delegation.token.secret.key": "of the cluster",
}
ADDED = [f"{mechanism}=[name=ann,password=secret,iterations=8192]" for mechanism in MECHANISMS[1:]]


class Secured(NamedTuple):
    process: KafkaProcess
    ports: dict[str, int]
    folder: Path


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = write_certificates(tmp_path_factory.mktemp("kafka"))
    ports = {protocol: free_port() for protocol in ("SASL_SSL", "SASL_PLAINTEXT", "SSL")}
    options = [word for each in ADDED for word in ("--add-scram", each)]
    try:
        process = KafkaProcess(
            folder / "data",
            V4,
            listeners=ports,
            settings={**SETTINGS, **tls_settings_of(folder)},
            format_options=options,
        )
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    with process:
        yield Secured(process, ports, folder)


def client_settings(kafka: Secured, protocol: str, mechanism: str) -> dict[str, str]:
    settings = {
        "bootstrap.servers": f"127.0.0.1:{kafka.ports[protocol]}",
        "security.protocol": protocol,
    }
    if protocol.endswith("SSL"):
        settings |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(kafka.folder / "ca.pem"),
        }
    if protocol == "SSL":
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(kafka.folder / "ann.pem")}
    else:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": "ann", "sasl.password": "secret"}
    return settings


COMBINATIONS = [
    ("SSL", ""),
    *((protocol, mechanism) for protocol in ("SASL_SSL", "SASL_PLAINTEXT") for mechanism in MECHANISMS),
]


@pytest.mark.parametrize(("protocol", "mechanism"), COMBINATIONS)
def test_produce_and_consume(kafka: Secured, protocol: str, mechanism: str) -> None:
    settings = client_settings(kafka, protocol, mechanism)
    topic = f"t-{protocol}-{mechanism}"
    values = [b"a", b"b" * 300_000, b"c"]
    with barnabas.Admin(settings) as admin:
        admin.create_topics([topic])
    with barnabas.Producer(settings) as producer:
        for value in values:
            producer.send(topic, value=value)
    with barnabas.Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(topic, 0)])
        found: list[Any] = []
        for _ in range(WAIT_S):
            found += consumer.poll(1_000)
            if len(found) == len(values):
                break
    assert [each.value for each in found] == values


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"sasl.password": "wrong"}, SaslAuthenticationFailed),
        ({"sasl.username": "nobody"}, SaslAuthenticationFailed),
        ({"sasl.mechanism": "PLAIN", "sasl.password": "wrong"}, SaslAuthenticationFailed),
        ({"ssl.truststore.location": "", "ssl.truststore.type": "JKS"}, TlsRefused),
    ],
)
def test_refusals(kafka: Secured, change: dict[str, str], error: type[KafkaError]) -> None:
    settings = {**client_settings(kafka, "SASL_SSL", "SCRAM-SHA-256"), **change}
    with barnabas.Admin(settings) as admin, pytest.raises(error):
        admin.list_topics()


# Conversations on the wire. Each result is an error code with its message, bytes, or the end of the connection.

CLOSED = "closed"


def choose(client: RawClient, mechanism: str, version: int = 1) -> Any:
    answer = client.ask("SaslHandshake", version, SaslHandshakeRequest(mechanism=mechanism))
    return answer.error_code, sorted(answer.mechanisms)


def authenticate(client: RawClient, message: bytes, version: int = 2) -> Any:
    answer = client.ask("SaslAuthenticate", version, SaslAuthenticateRequest(auth_bytes=message))
    return answer.error_code, answer.error_message, answer.session_lifetime_ms


def metadata(client: RawClient) -> Any:
    return len(client.ask("Metadata", 9, MetadataRequest(topics=[])).brokers)


def scram_log_in(client: RawClient, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> Any:
    scram = ScramClient(mechanism, user, password)
    message = scram.first()
    while True:
        answer = client.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=message))
        if answer.error_code:
            return answer.error_code, answer.error_message
        message = scram.step(answer.auth_bytes)
        if scram.is_complete:
            return 0


def renewed(client: RawClient, password: str = "secret") -> Any:
    """With the mechanism whose sessions have an end."""
    mechanism = "SCRAM-SHA-256"
    return choose(client, mechanism), scram_log_in(client, "ann", password, mechanism)


def bare(client: RawClient, message: bytes) -> bytes:
    client.send_bytes(struct.pack(">i", len(message)) + message)
    return client.receive_frame()


Step = Callable[[RawClient], Any]
PLAIN_ANN = b"\0ann\0secret"
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")

CONVERSATIONS: dict[str, list[Step]] = {
    "plain": [lambda c: choose(c, "PLAIN"), lambda c: authenticate(c, PLAIN_ANN), metadata],
    "scram": [lambda c: choose(c, "SCRAM-SHA-512"), lambda c: scram_log_in(c, "ann", "secret"), metadata],
    "wrong scram": [
        lambda c: choose(c, "SCRAM-SHA-512"),
        lambda c: scram_log_in(c, "ann", "wrong"),
        metadata,
    ],
    "version 0": [lambda c: choose(c, "PLAIN", 0), lambda c: bare(c, PLAIN_ANN), metadata],
    "wrong, version 0": [lambda c: choose(c, "PLAIN", 0), lambda c: bare(c, b"\0ann\0nope")],
    "wrong password": [lambda c: choose(c, "PLAIN"), lambda c: authenticate(c, b"\0ann\0nope"), metadata],
    "unknown user": [lambda c: choose(c, "PLAIN"), lambda c: authenticate(c, b"\0eve\0secret"), metadata],
    "two tokens": [lambda c: choose(c, "PLAIN"), lambda c: authenticate(c, b"\0ann"), metadata],
    "empty": [lambda c: choose(c, "PLAIN"), lambda c: authenticate(c, b""), metadata],
    "no user": [lambda c: choose(c, "PLAIN"), lambda c: authenticate(c, b"\0\0secret"), metadata],
    "no password": [lambda c: choose(c, "PLAIN"), lambda c: authenticate(c, b"\0ann\0"), metadata],
    "other id": [lambda c: choose(c, "PLAIN"), lambda c: authenticate(c, b"eve\0ann\0secret"), metadata],
    "unknown mechanism": [lambda c: choose(c, "NONE"), metadata],
    "no handshake": [lambda c: authenticate(c, PLAIN_ANN)],
    "request at once": [metadata],
    # To other requests after a handshake Kafka answers ILLEGAL_SASL_STATE in the form of their API. We do so if the
    # response has an error code of its own; Metadata, for one, has one for each topic, and we only close.
    "versions within": [
        lambda c: choose(c, "PLAIN"),
        lambda c: c.ask("ApiVersions", 3, VERSIONS).error_code,
        metadata,
    ],
    "a coordinator within": [
        lambda c: choose(c, "PLAIN"),
        lambda c: c.ask("FindCoordinator", 2, FindCoordinatorRequest(key="group")).error_code,
        metadata,
    ],
    "a group within": [
        lambda c: choose(c, "SCRAM-SHA-512"),
        lambda c: c.ask("Heartbeat", 3, HeartbeatRequest(group_id="g", member_id="m")).error_code,
        metadata,
    ],
    "two handshakes": [lambda c: choose(c, "PLAIN"), lambda c: choose(c, "PLAIN")],
    "sasl afterwards": [
        lambda c: choose(c, "PLAIN"),
        lambda c: authenticate(c, PLAIN_ANN),
        lambda c: choose(c, "PLAIN")[0],
        lambda c: authenticate(c, PLAIN_ANN),
        metadata,
    ],
    "versions first": [
        lambda c: c.ask("ApiVersions", 0, ApiVersionsRequest()).error_code,
        lambda c: choose(c, "PLAIN"),
        lambda c: authenticate(c, PLAIN_ANN, 1),
        metadata,
    ],
    "again at once": [renewed, renewed, metadata],
    "again and again": [renewed, renewed, lambda c: choose(c, "SCRAM-SHA-256"), metadata],
    "again with a wrong password": [renewed, lambda c: renewed(c, "wrong"), metadata],
    "again with another mechanism": [
        renewed,
        lambda c: choose(c, "SCRAM-SHA-512"),
        lambda c: scram_log_in(c, "ann", "secret"),
    ],
    "a request after another mechanism": [renewed, lambda c: choose(c, "PLAIN"), metadata],
    "versions after another mechanism": [
        renewed,
        lambda c: choose(c, "PLAIN"),
        lambda c: c.ask("ApiVersions", 3, VERSIONS).error_code,
    ],
    "again with an unknown mechanism": [renewed, lambda c: choose(c, "NONE"), metadata],
    "oversized": [lambda c: c.send_bytes(struct.pack(">i", 600_000)), lambda c: c.receive_frame()],
}


def outcome(port: int, steps: list[Step]) -> list[Any]:
    results = []
    with RawClient(port) as client:
        for step in steps:
            try:
                results.append(step(client))
            except (ConnectionError, KafkaError) as error:
                results.append(CLOSED if isinstance(error, ConnectionError) else type(error).__name__)
                break
    return results


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {
        name: text for name, text in SETTINGS.items() if "sasl_ssl" not in name and "ssl." not in name
    }
    settings["listeners"] = "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
    with RunningBroker(tmp_path_factory.mktemp("ours"), settings) as broker:
        with barnabas.Admin(bootstrap_servers=broker.address) as admin:
            for mechanism in ScramMechanism:
                admin.set_scram_password("ann", "secret", mechanism=mechanism)
        yield broker


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_both_brokers_say_the_same(kafka: Secured, ours: RunningBroker, name: str) -> None:
    steps = CONVERSATIONS[name]
    assert outcome(ours.server.ports["SASL_PLAINTEXT"], steps) == outcome(
        kafka.ports["SASL_PLAINTEXT"], steps
    )


def logged_in(port: int, user: str, password: str) -> RawClient:
    client = RawClient(port)
    choose(client, "PLAIN")
    assert authenticate(client, f"\0{user}\0{password}".encode())[0] == 0
    return client


def token_answers(port: int) -> list[Any]:
    """What a broker says about tokens: to its owner, its renewer, another user, and a client that it has logged in."""
    answers: list[Any] = []
    with (
        logged_in(port, "ann", "secret") as ann,
        logged_in(port, "bob", "hush") as bob,
        logged_in(port, "eve", "mute") as eve,
        RawClient(port) as holder,
    ):
        token = create(ann, "bob", max_lifetime_ms=100_000)
        answers += [token.error_code, token.principal_name, token.token_requester_principal_name]
        answers.append((token.expiry_timestamp_ms - token.issue_timestamp_ms) // 1_000)
        # A broker of KRaft hears of the token a moment later.
        wait_until(lambda: token.token_id in described(ann), lambda: described(ann))
        # Without an authorizer Kafka shows it to everybody, and we do not.
        answers += [token.token_id in described(bob), token.token_id in described(bob, "ann")]
        answers.append(len(described(ann, is_all=False)))
        answers.append(create(ann, "bob", max_lifetime_ms=-2).error_code)
        wrong = token.hmac[::-1]
        answers += [renew(each, token.hmac, 50_000).error_code for each in (ann, bob, eve)]
        answers += [renew(ann, wrong, 50_000).error_code, expire(ann, wrong, -1).error_code]
        with RawClient(port) as guessing:
            answers.append(log_in(guessing, token.token_id, wrong).error_code)
        answers.append(log_in(holder, token.token_id, token.hmac).error_code)
        answers += [create(holder).error_code, renew(holder, token.hmac, 1_000).error_code]
        answers += [expire(eve, token.hmac, -1).error_code, expire(bob, token.hmac, -1).error_code]
        wait_until(lambda: token.token_id not in described(ann), lambda: described(ann))
        answers += [expire(ann, token.hmac, -1).error_code, renew(ann, token.hmac, 1_000).error_code]
        # Whom the token has logged in logs in again with a password.
        answers += [renewed(holder), create(holder).error_code]
    return answers


def test_both_brokers_say_the_same_about_tokens(kafka: Secured, ours: RunningBroker) -> None:
    expected = token_answers(kafka.ports["SASL_PLAINTEXT"])
    assert token_answers(ours.server.ports["SASL_PLAINTEXT"]) == expected


def described_listener(port: int) -> dict[str, Any]:
    """The settings of the listener, as a client sees them."""
    with logged_in(port, "ann", "secret") as client:
        [broker] = client.ask("Metadata", 9, MetadataRequest(topics=[])).brokers
        resource = DescribeConfigsResource(resource_type=4, resource_name=str(broker.node_id))
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        [result] = client.ask("DescribeConfigs", 4, request).results
    return {
        each.name: (
            each.value,
            each.is_sensitive,
            each.read_only,
            each.config_type,
            each.config_source,
            [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
        )
        for each in result.configs
        if each.name.startswith("listener.name.sasl_plaintext.")
    }


def test_both_brokers_describe_settings_of_listeners(kafka: Secured, ours: RunningBroker) -> None:
    expected = described_listener(kafka.ports["SASL_PLAINTEXT"])
    assert len(expected) == 4
    assert described_listener(ours.server.ports["SASL_PLAINTEXT"]) == expected
