"""Delegation tokens in a cluster of a Kafka 3.9.1 broker and one of ours: each reads what the other has stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from barnabas.testing import free_port
from tests.broker.authentication.test_delegation_tokens import create, described, expire, log_in, renew
from tests.broker.raw_client import RawClient
from tests.cluster.clusters import ClusterBroker
from tests.peers.kafka_peer import V3, PeerUnavailable, broker_on, jars
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

CLUSTER_ID: Final = "WZEKwK-bS62oT3ZOSU0dgw"
KAFKA, OURS = "kafka", "ours"
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
FAILED: Final = 58
NOT_FOUND: Final = 62
HOUR_MS: Final = 3_600_000
SETTINGS: Final = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_ann="a" user_bob="b";',
    # Kafka wants an entry for each mechanism.
    **{
        f"listener.name.sasl_plaintext.{mechanism.lower()}.sasl.jaas.config": f"{SCRAM} required;"
        for mechanism in MECHANISMS
    },
    "delegation.token.secret.key": "of the cluster",
    "inter.broker.listener.name": "PLAINTEXT",
    "connection.failed.authentication.delay.ms": "0",
}


def listeners(port: int) -> dict[str, str]:
    return {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SASL_PLAINTEXT://127.0.0.1:{port}"}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Of the listeners with SASL."""
    try:
        jars(V3)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    found = {KAFKA: free_port(), OURS: free_port()}
    folder, log = tmp_path_factory.mktemp("kafka"), tmp_path_factory.mktemp("log")
    with broker_on(log, folder, 1, CLUSTER_ID, {**SETTINGS, **listeners(found[KAFKA])}) as kafka:
        settings = {
            "broker.id": "2",
            "zookeeper.connect": f"127.0.0.1:{kafka.zookeeper_port}",
            "zookeeper.session.timeout.ms": "60000",
            **SETTINGS,
            **listeners(found[OURS]),
        }
        with ClusterBroker(2, tmp_path_factory.mktemp("ours") / "data", settings) as ours:
            yield found
            assert "Traceback" not in ours.log_text()


def connect(port: int, user: str, password: str) -> RawClient:
    client = RawClient(port)
    assert client.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN")).error_code == 0
    message = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
    assert client.ask("SaslAuthenticate", 2, message).error_code == 0
    return client


def answer_to(port: int, token_id: str, secret: bytes, mechanism: str = MECHANISMS[0]) -> int:
    with RawClient(port) as client:
        return int(log_in(client, token_id, secret, mechanism).error_code)


@pytest.mark.parametrize(("creator", "other"), [(KAFKA, OURS), (OURS, KAFKA)])
def test_a_token_of_one_is_good_at_the_other(ports: dict[str, int], creator: str, other: str) -> None:
    with connect(ports[creator], "ann", "a") as ann, connect(ports[other], "bob", "b") as bob:
        token = create(ann, "bob", max_lifetime_ms=HOUR_MS)
        assert token.error_code == 0
        # The other broker hears of it a moment later.
        wait_until(lambda: token.token_id in described(bob), lambda: described(bob))
        [here] = [described(ann)[token.token_id]]
        [there] = [described(bob)[token.token_id]]
        assert there == here
        assert (there.principal_name, there.hmac) == ("ann", token.hmac)
        assert [each.principal_name for each in there.renewers] == ["bob"]
        for mechanism in MECHANISMS:
            for port in ports.values():
                assert answer_to(port, token.token_id, token.hmac, mechanism) == 0
        assert answer_to(ports[other], token.token_id, token.hmac[::-1]) == FAILED
        renewed = renew(bob, token.hmac, HOUR_MS // 2)
        assert renewed.error_code == 0
        wait_until(
            lambda: described(ann)[token.token_id].expiry_timestamp == renewed.expiry_timestamp_ms,
            lambda: described(ann),
        )
        # With a period below zero the token ends at once.
        assert expire(bob, token.hmac, -1).error_code == 0
        wait_until(lambda: token.token_id not in described(ann), lambda: described(ann))
        for port in ports.values():
            assert answer_to(port, token.token_id, token.hmac) == FAILED
        assert renew(ann, token.hmac, HOUR_MS).error_code == NOT_FOUND
