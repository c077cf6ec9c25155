"""Authentication on the wire, request by request."""

from __future__ import annotations

import base64
import gc
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.requests.session import ClientSession
from barnabas.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.api_versions_request import ApiVersionsRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from barnabas.security.scram import ScramClient, salted_password
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker

ILLEGAL_SASL_STATE = 34
UNSUPPORTED_SASL_MECHANISM = 33
SASL_AUTHENTICATION_FAILED = 58
DELAY_MS = 30
PLAIN_ANN = b"\0ann\0secret"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,RENEWED://127.0.0.1:0",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,RENEWED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "connection.failed.authentication.delay.ms": str(DELAY_MS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ann="secret";',
    "listener.name.renewed.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ann="secret" user_bob="hush";',
    "listener.name.renewed.connections.max.reauth.ms": "3000",
    "listener.name.renewed.scram-sha-256.connections.max.reauth.ms": "700000",
    "sasl.server.max.receive.size": "10000",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        with RawClient(running.server.ports["PLAINTEXT"]) as client:
            for mechanism in (1, 2):
                name = f"SCRAM-SHA-{256 * mechanism}"
                upsertion = ScramCredentialUpsertion(
                    name="ann",
                    mechanism=mechanism,
                    iterations=4096,
                    salt=b"salt",
                    salted_password=salted_password(name, "secret", b"salt", 4096),
                )
                request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
                answer = client.ask("AlterUserScramCredentials", 0, request)
                assert answer.results[0].error_code == 0
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.server.ports["SASL_PLAINTEXT"]) as connected:
        yield connected


@pytest.fixture
def renewed(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.server.ports["RENEWED"]) as connected:
        yield connected


def choose(client: RawClient, mechanism: str, version: int = 1) -> Any:
    return client.ask("SaslHandshake", version, SaslHandshakeRequest(mechanism=mechanism))


def authenticate(client: RawClient, message: bytes, version: int = 2) -> Any:
    return client.ask("SaslAuthenticate", version, SaslAuthenticateRequest(auth_bytes=message))


def log_in(client: RawClient, message: bytes = PLAIN_ANN, version: int = 2) -> Any:
    assert choose(client, "PLAIN").error_code == 0
    answer = authenticate(client, message, version)
    assert answer.error_code == 0, answer.error_message
    return answer


def served(client: RawClient) -> bool:
    return bool(client.ask("Metadata", 9, MetadataRequest(topics=[])).brokers)


def serve_for_ever(client: RawClient) -> None:
    while served(client):
        pass


def principals(listener: str) -> set[str]:
    """Of the clients that are or were connected: the broker runs in this process."""
    sessions = [each for each in gc.get_objects() if isinstance(each, ClientSession)]
    return {str(each.principal) for each in sessions if each.listener == listener}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain(client: RawClient, version: int) -> None:
    assert choose(client, "PLAIN").mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    answer = authenticate(client, PLAIN_ANN, version)
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    assert served(client)
    assert "User:ann" in principals("SASL_PLAINTEXT")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(client: RawClient, mechanism: str) -> None:
    scram = ScramClient(mechanism, "ann", "secret")
    assert choose(client, mechanism).error_code == 0
    challenge = authenticate(client, scram.first())
    assert challenge.error_code == 0
    final = authenticate(client, scram.step(challenge.auth_bytes))
    assert final.error_code == 0
    scram.step(final.auth_bytes)
    assert scram.is_complete
    assert served(client)


def test_bare_messages_after_version_0(client: RawClient) -> None:
    assert choose(client, "PLAIN", version=0).error_code == 0
    client.send_bytes(struct.pack(">i", len(PLAIN_ANN)) + PLAIN_ANN)
    assert client.receive_frame() == b""
    assert served(client)


def test_bare_messages_of_scram(client: RawClient) -> None:
    scram = ScramClient("SCRAM-SHA-256", "ann", "secret")
    assert choose(client, "SCRAM-SHA-256", version=0).error_code == 0
    message = scram.first()
    while not scram.is_complete:
        client.send_bytes(struct.pack(">i", len(message)) + message)
        message = scram.step(client.receive_frame())
    assert served(client)


def test_a_wrong_bare_message_ends_the_connection(client: RawClient) -> None:
    assert choose(client, "PLAIN", version=0).error_code == 0
    client.send_bytes(struct.pack(">i", 9) + b"\0ann\0nope")
    assert client.is_closed_by_broker()


def test_versions_may_be_asked_before(client: RawClient) -> None:
    for version in (3, 0):
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = client.ask("ApiVersions", version, request if version else ApiVersionsRequest())
        offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert (offered[17], offered[36]) == ((0, 1), (0, 2))
    log_in(client)


def test_versions_may_not_be_asked_for_ever(client: RawClient) -> None:
    for _ in range(11):
        client.send("ApiVersions", 0, ApiVersionsRequest())
    for _ in range(10):
        client.receive_frame()
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("after", ["nothing", "versions", "handshake", "challenge"])
def test_other_requests_before_authentication_end_the_connection(client: RawClient, after: str) -> None:
    if after != "nothing":
        client.ask("ApiVersions", 0, ApiVersionsRequest())
    if after in ("handshake", "challenge"):
        choose(client, "SCRAM-SHA-256")
    if after == "challenge":
        authenticate(client, ScramClient("SCRAM-SHA-256", "ann", "secret").first())
    client.send("Metadata", 9, MetadataRequest(topics=[]))
    assert client.is_closed_by_broker()


def test_a_message_without_handshake_ends_the_connection(client: RawClient) -> None:
    client.send("SaslAuthenticate", 1, SaslAuthenticateRequest(auth_bytes=PLAIN_ANN))
    assert client.is_closed_by_broker()


def test_a_second_handshake_ends_the_connection(client: RawClient) -> None:
    choose(client, "PLAIN")
    assert choose(client, "PLAIN").error_code == ILLEGAL_SASL_STATE
    assert client.is_closed_by_broker()


def test_requests_that_are_sent_ahead_are_not_served(client: RawClient) -> None:
    client.send("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN"))
    client.send("SaslAuthenticate", 1, SaslAuthenticateRequest(auth_bytes=b"\0ann\0wrong"))
    client.send("Metadata", 9, MetadataRequest(topics=[]))
    client.receive_frame()
    client.receive_frame()
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "plain", "", "x" * 1000])
def test_an_unknown_mechanism_gets_the_list(client: RawClient, mechanism: str) -> None:
    answer = choose(client, mechanism)
    assert answer.error_code == UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("message", [b"\0ann\0wrong", b"\0nobody\0secret"])
def test_a_wrong_password_is_told_and_ends_the_connection(client: RawClient, message: bytes) -> None:
    choose(client, "PLAIN")
    answer = authenticate(client, message)
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("user", ["ann", "nobody"])
def test_scram_does_not_tell_which_users_exist(client: RawClient, user: str) -> None:
    scram = ScramClient("SCRAM-SHA-256", user, "wrong")
    choose(client, "SCRAM-SHA-256")
    challenge = authenticate(client, scram.first())
    assert challenge.error_code == 0
    assert challenge.auth_bytes.endswith(b",i=4096")
    answer = authenticate(client, scram.step(challenge.auth_bytes))
    assert answer.error_code == SASL_AUTHENTICATION_FAILED
    assert answer.error_message.endswith("due to invalid credentials with SASL mechanism SCRAM-SHA-256")
    assert client.is_closed_by_broker()


def test_an_oversized_message_ends_the_connection(client: RawClient) -> None:
    choose(client, "PLAIN")
    client.send_bytes(struct.pack(">i", 10_001))
    assert client.is_closed_by_broker()


def test_large_requests_are_served_afterwards(client: RawClient) -> None:
    log_in(client)
    topics = [f"{'x' * 200}{number}" for number in range(100)]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
    )
    assert len(client.ask("Metadata", 9, request).topics) == 100


def test_after_authentication_sasl_is_illegal(client: RawClient) -> None:
    log_in(client)
    assert choose(client, "PLAIN").error_code == ILLEGAL_SASL_STATE
    assert authenticate(client, PLAIN_ANN).error_code == ILLEGAL_SASL_STATE
    assert served(client)


def test_a_listener_without_sasl(broker: RunningBroker) -> None:
    with RawClient(broker.server.ports["PLAINTEXT"]) as client:
        assert choose(client, "PLAIN").error_code == ILLEGAL_SASL_STATE
        assert authenticate(client, PLAIN_ANN).error_code == ILLEGAL_SASL_STATE
        assert served(client)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_lifetime_of_a_session_is_told(renewed: RawClient, version: int) -> None:
    assert log_in(renewed, version=version).session_lifetime_ms == (3000 if version else 0)


def test_a_mechanism_has_a_lifetime_of_its_own(renewed: RawClient) -> None:
    scram = ScramClient("SCRAM-SHA-256", "ann", "secret")
    choose(renewed, "SCRAM-SHA-256")
    answer = authenticate(renewed, scram.first())
    assert authenticate(renewed, scram.step(answer.auth_bytes)).session_lifetime_ms == 700_000


@pytest.mark.slow
def test_a_session_that_has_ended(renewed: RawClient) -> None:
    log_in(renewed)
    assert served(renewed)
    with pytest.raises(ConnectionError):
        serve_for_ever(renewed)


@pytest.mark.slow
def test_authentication_again(renewed: RawClient) -> None:
    log_in(renewed)
    log_in(renewed)
    began = time.monotonic()
    # Too soon after the last time.
    assert choose(renewed, "PLAIN").error_code == ILLEGAL_SASL_STATE
    assert served(renewed)
    while time.monotonic() < began + 1.1:
        assert served(renewed)
    log_in(renewed)
    while time.monotonic() < began + 3.2:
        assert served(renewed)
    # After the end of the session too, if nothing else comes before.
    time.sleep(max(0.0, began + 4.5 - time.monotonic()))
    log_in(renewed)
    assert served(renewed)


@pytest.mark.parametrize("change", ["user", "mechanism", "unknown mechanism", "password"])
def test_authentication_again_as_another(broker: RunningBroker, renewed: RawClient, change: str) -> None:
    before = counted(broker, "RENEWED")["failed_reauthentication_total"]
    log_in(renewed)
    if change == "mechanism":
        # Kafka answers so, and ends the connection at the next frame.
        answer = choose(renewed, "SCRAM-SHA-256")
        assert (answer.error_code, answer.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
        scram = ScramClient("SCRAM-SHA-256", "ann", "secret")
        renewed.send("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=scram.first()))
    elif change == "unknown mechanism":
        # Kafka answers nothing, and counts nothing.
        renewed.send("SaslHandshake", 1, SaslHandshakeRequest(mechanism="GSSAPI"))
    else:
        assert choose(renewed, "PLAIN").error_code == 0
        answer = authenticate(renewed, b"\0bob\0hush" if change == "user" else b"\0ann\0wrong")
        assert answer.error_code == SASL_AUTHENTICATION_FAILED
        if change == "user":
            assert answer.error_message == (
                "Cannot change principals during re-authentication from User:ann to User:bob"
            )
    assert renewed.is_closed_by_broker()
    failures = counted(broker, "RENEWED")["failed_reauthentication_total"] - before
    assert failures == (change != "unknown mechanism")


def counted(broker: RunningBroker, listener: str) -> dict[str, int]:
    """Kafka's metrics of authentications, of one listener."""
    prefix = "kafka_server_socketservermetrics_"
    found = {}
    for line in broker.server.broker.metrics.render().splitlines():
        name, _, value = line.partition(f'{{listener="{listener}"}} ')
        if value:
            found[name.removeprefix(prefix)] = int(value)
    return found


def test_authentications_are_counted(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, SETTINGS) as running:
        for listener in ("SASL_PLAINTEXT", "RENEWED"):
            port = running.server.ports[listener]
            for version in (0, 1, 2):
                with RawClient(port) as client:
                    log_in(client, version=version)
            for wrong in (b"\0ann\0wrong", b"\0nobody\0secret"):
                with RawClient(port) as client:
                    choose(client, "PLAIN")
                    assert authenticate(client, wrong).error_code == SASL_AUTHENTICATION_FAILED
            with RawClient(port) as client:
                assert choose(client, "NONE").error_code == UNSUPPORTED_SASL_MECHANISM
            with RawClient(port) as client:
                client.send("Metadata", 9, MetadataRequest(topics=[]))
                assert client.is_closed_by_broker()
            assert counted(running, listener) == {
                "successful_authentication_total": 3,
                "successful_authentication_no_reauth_total": 1,
                "failed_authentication_total": 4,
                "successful_reauthentication_total": 0,
                "failed_reauthentication_total": 0,
                "expired_connections_killed_count": 0,
            }
        assert counted(running, "PLAINTEXT") == {}


@pytest.mark.slow
def test_authentications_again_are_counted(broker: RunningBroker) -> None:
    before = counted(broker, "RENEWED")
    clients = [RawClient(broker.server.ports["RENEWED"]) for _ in range(3)]
    for client in clients:
        log_in(client)
    log_in(clients[0])
    assert choose(clients[1], "PLAIN").error_code == 0
    assert authenticate(clients[1], b"\0ann\0wrong").error_code == SASL_AUTHENTICATION_FAILED
    with pytest.raises(ConnectionError):
        serve_for_ever(clients[2])
    for client in clients:
        client.close()
    after = counted(broker, "RENEWED")
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
        "successful_authentication_total": 3,
        "successful_reauthentication_total": 1,
        "failed_reauthentication_total": 1,
        "expired_connections_killed_count": 1,
    }


@pytest.mark.parametrize("version", [0, 3])
def test_another_request_within_the_exchange_is_told_and_ends_it(client: RawClient, version: int) -> None:
    assert choose(client, "SCRAM-SHA-256").error_code == 0
    authenticate(client, ScramClient("SCRAM-SHA-256", "ann", "secret").first())
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = client.ask("ApiVersions", version, request if version else ApiVersionsRequest())
    assert (answer.error_code, answer.api_keys) == (ILLEGAL_SASL_STATE, [])
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_guesses_of_passwords(broker: RunningBroker, mechanism: str) -> None:
    """A connection has one guess, which takes the broker little time, and others are served meanwhile."""
    listener = "SASL_PLAINTEXT"
    before = counted(broker, listener)["failed_authentication_total"]
    guesses = 20
    with RawClient(broker.server.ports[listener]) as healthy:
        log_in(healthy)
        for number in range(guesses):
            user = "ann" if number % 2 else f"nobody-{number}"
            with RawClient(broker.server.ports[listener]) as guessing:
                assert choose(guessing, mechanism).error_code == 0
                if mechanism == "PLAIN":
                    first = f"\0{user}\0guess-{number}".encode()
                else:
                    challenge = authenticate(guessing, f"n,,n={user},r=nonce".encode()).auth_bytes
                    proof = base64.b64encode(bytes(64))
                    first = b"c=biws," + challenge.partition(b",")[0] + b",p=" + proof
                guessing.send("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=first))
                # A second guess that is sent ahead is not looked at.
                guessing.send("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=PLAIN_ANN))
                assert served(healthy)
                guessing.receive_frame()
                assert guessing.is_closed_by_broker()
    assert counted(broker, listener)["failed_authentication_total"] == before + guesses
