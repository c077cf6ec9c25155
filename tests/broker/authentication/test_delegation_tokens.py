"""Delegation tokens: created, renewed, shown and removed by their owners, and used to log in."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from barnabas.protocol.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.protocol.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from barnabas.protocol.messages.metadata_request import MetadataRequest
from barnabas.protocol.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from barnabas.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from barnabas.security.acls import CREATE_TOKENS, DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from barnabas.security.scram import ScramClient, salted_password
from tests.broker.acl_requests import STANDARD_AUTHORIZER, add_acls, allow
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = {"ann": "a", "bob": "b", "eve": "e"}
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f"{MODULE} required {' '.join(f'user_{name}={password}' for name, password in USERS.items())};"
    ),
    "connection.failed.authentication.delay.ms": "0",
}
ENABLED = {
    **SETTINGS,
    "delegation.token.secret.key": "of the cluster",
    "delegation.token.max.lifetime.ms": "1000000",
}
AUTH_DISABLED, NOT_FOUND, OWNER_MISMATCH, NOT_ALLOWED, UNAUTHORIZED, EXPIRED = 61, 62, 63, 64, 65, 66
INVALID_PRINCIPAL_TYPE = 67
FAILED = 58


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("broker"), ENABLED) as running:
        yield running


def connect(broker: RunningBroker, user: str) -> RawClient:
    client = RawClient(broker.server.ports["SASL_PLAINTEXT"])
    client.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN"))
    message = f"\0{user}\0{USERS[user]}".encode()
    answer = client.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=message))
    assert answer.error_code == 0
    return client


@pytest.fixture
def ann(broker: RunningBroker) -> Iterator[RawClient]:
    with connect(broker, "ann") as client:
        yield client


def create(client: RawClient, *renewers: str, version: int = 3, **fields: Any) -> Any:
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="User", principal_name=each) for each in renewers],
        **fields,
    )
    return client.ask("CreateDelegationToken", version, request)


def described(client: RawClient, *owners: str, is_all: bool = True, version: int = 3) -> dict[str, Any]:
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners]
    request = DescribeDelegationTokenRequest(owners=None if is_all and not owners else named)
    answer = client.ask("DescribeDelegationToken", version, request)
    assert answer.error_code == 0
    return {each.token_id: each for each in answer.tokens}


def renew(client: RawClient, secret: bytes, period_ms: int) -> Any:
    return client.ask(
        "RenewDelegationToken", 2, RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
    )


def expire(client: RawClient, secret: bytes, period_ms: int) -> Any:
    request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
    return client.ask("ExpireDelegationToken", 2, request)


def log_in(client: RawClient, token_id: str, secret: bytes, mechanism: str = "SCRAM-SHA-256") -> Any:
    """The last answer."""
    password = base64.b64encode(secret).decode()
    scram = ScramClient(mechanism, token_id, password, is_token=True)
    client.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism=mechanism))
    message = scram.first()
    while True:
        answer = client.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=message))
        if answer.error_code:
            return answer
        message = scram.step(answer.auth_bytes)
        if scram.is_complete:
            return answer


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_create_and_describe(ann: RawClient, version: int) -> None:
    token = create(ann, "bob", version=version, max_lifetime_ms=5_000)
    assert token.error_code == 0
    assert len(token.token_id) == 22
    assert len(token.hmac) == 64
    assert token.max_timestamp_ms == token.expiry_timestamp_ms == token.issue_timestamp_ms + 5_000
    shown = described(ann, version=version)[token.token_id]
    assert (shown.principal_name, shown.hmac) == ("ann", token.hmac)
    assert shown.token_requester_principal_name == ("ann" if version == 3 else "")
    assert [each.principal_name for each in shown.renewers] == ["bob"]


def test_the_longest_life_is_bounded(ann: RawClient) -> None:
    for wanted_ms in (-1, 0, 2_000_000, 2**62):
        token = create(ann, max_lifetime_ms=wanted_ms)
        assert token.max_timestamp_ms == token.issue_timestamp_ms + 1_000_000


def test_who_sees_and_renews(broker: RunningBroker, ann: RawClient) -> None:
    token = create(ann, "bob")
    with connect(broker, "bob") as bob, connect(broker, "eve") as eve:
        assert token.token_id in described(bob)
        assert token.token_id in described(bob, "ann")
        assert token.token_id not in described(eve)
        assert described(ann, is_all=False) == {}
        assert renew(eve, token.hmac, 1_000).error_code == OWNER_MISMATCH
        assert expire(eve, token.hmac, -1).error_code == OWNER_MISMATCH
        assert renew(bob, b"x" * 64, 1_000).error_code == NOT_FOUND
        renewed = renew(bob, token.hmac, 600_000)
        assert renewed.error_code == 0
        assert described(ann)[token.token_id].expiry_timestamp == renewed.expiry_timestamp_ms
        assert renew(ann, token.hmac, 2**40).expiry_timestamp_ms == token.max_timestamp_ms


def test_removal(broker: RunningBroker, ann: RawClient) -> None:
    token = create(ann)
    assert expire(ann, token.hmac, 0).error_code == 0
    # The expiry of a token that has just expired is the present.
    while renew(ann, token.hmac, 0).error_code == 0:
        pass
    assert renew(ann, token.hmac, 1_000).error_code == EXPIRED
    with RawClient(broker.server.ports["SASL_PLAINTEXT"]) as client:
        assert log_in(client, token.token_id, token.hmac).error_code == FAILED
    assert expire(ann, token.hmac, -1).error_code == 0
    assert expire(ann, token.hmac, -1).error_code == NOT_FOUND
    assert token.token_id not in described(ann)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_log_in_with_a_token(broker: RunningBroker, ann: RawClient, mechanism: str) -> None:
    token = create(ann)
    for _ in range(2):
        with RawClient(broker.server.ports["SASL_PLAINTEXT"]) as client:
            answer = log_in(client, token.token_id, token.hmac, mechanism)
            assert answer.error_code == 0
            # The session ends with the token.
            assert 0 < answer.session_lifetime_ms <= 1_000_000
            assert client.ask("Metadata", 9, MetadataRequest(topics=[])).brokers
            assert create(client).error_code == NOT_ALLOWED
    for token_id, secret in ((token.token_id, b"wrong"), ("none", token.hmac)):
        with RawClient(broker.server.ports["SASL_PLAINTEXT"]) as client:
            assert log_in(client, token_id, secret, mechanism).error_code == FAILED


def test_log_in_again_with_a_password(broker: RunningBroker, ann: RawClient) -> None:
    """As in Kafka, the user is the same."""
    with RawClient(broker.server.ports["PLAINTEXT"]) as client:
        upsertion = ScramCredentialUpsertion(
            name="ann",
            mechanism=1,
            iterations=4096,
            salt=b"salt",
            salted_password=salted_password("SCRAM-SHA-256", "of ann", b"salt", 4096),
        )
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
        assert client.ask("AlterUserScramCredentials", 0, request).results[0].error_code == 0
    token = create(ann)
    with RawClient(broker.server.ports["SASL_PLAINTEXT"]) as client:
        assert log_in(client, token.token_id, token.hmac).error_code == 0
        assert create(client).error_code == NOT_ALLOWED
        scram = ScramClient("SCRAM-SHA-256", "ann", "of ann")
        assert client.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256")).error_code == 0
        message = scram.first()
        while not scram.is_complete:
            answer = client.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=message))
            assert answer.error_code == 0, answer.error_message
            message = scram.step(answer.auth_bytes)
        assert create(client).error_code == 0


def test_refusals(broker: RunningBroker, ann: RawClient) -> None:
    assert create(ann, owner_principal_type="User", owner_principal_name="bob").error_code == UNAUTHORIZED
    group = CreatableRenewers(principal_type="Group", principal_name="x")
    answer = ann.ask("CreateDelegationToken", 3, CreateDelegationTokenRequest(renewers=[group]))
    assert (answer.error_code, answer.issue_timestamp_ms, answer.token_id) == (INVALID_PRINCIPAL_TYPE, -1, "")
    with RawClient(broker.server.ports["PLAINTEXT"]) as open_client:
        assert create(open_client).error_code == NOT_ALLOWED
        assert renew(open_client, b"x", 1).error_code == NOT_ALLOWED


def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, ENABLED) as first, connect(first, "ann") as client:
        token = create(client, "bob")
    with RunningBroker(tmp_path, ENABLED) as second, connect(second, "ann") as client:
        assert described(client)[token.token_id].hmac == token.hmac


def test_without_a_key(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, SETTINGS) as running, connect(running, "ann") as client:
        assert create(client).error_code == AUTH_DISABLED
        other = create(client, owner_principal_type="User", owner_principal_name="bob")
        assert other.error_code == UNAUTHORIZED
        group = CreatableRenewers(principal_type="Group", principal_name="x")
        request = CreateDelegationTokenRequest(renewers=[group])
        assert client.ask("CreateDelegationToken", 3, request).error_code == INVALID_PRINCIPAL_TYPE
        assert renew(client, b"x", 1).error_code == AUTH_DISABLED
        answer = client.ask("DescribeDelegationToken", 3, DescribeDelegationTokenRequest(owners=None))
        assert answer.error_code == AUTH_DISABLED


@pytest.mark.slow
def test_expired_tokens_are_removed(tmp_path: Path) -> None:
    settings = {**ENABLED, "delegation.token.expiry.check.interval.ms": "50"}
    with RunningBroker(tmp_path, settings) as running, connect(running, "ann") as client:
        token = create(client, max_lifetime_ms=100)
        while token.token_id in described(client):
            pass


def test_acls_decide_about_tokens_of_others(tmp_path: Path) -> None:
    """As in Kafka: CreateTokens and DescribeTokens on the user, or Describe on the token."""
    settings = {**ENABLED, "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:eve"}
    with (
        RunningBroker(tmp_path, settings) as broker,
        connect(broker, "ann") as ann,
        connect(broker, "bob") as bob,
        connect(broker, "eve") as eve,
    ):
        of_bob: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "bob"}
        others = create(bob)
        assert create(ann, **of_bob).error_code == UNAUTHORIZED
        assert described(ann) == {}
        add_acls(broker, [allow(DESCRIBE, DELEGATION_TOKEN, others.token_id, principal="User:ann")])
        assert list(described(ann)) == [others.token_id]
        add_acls(broker, [allow(CREATE_TOKENS, USER, "User:bob", principal="User:ann")])
        made = create(ann, **of_bob)
        assert (made.error_code, made.principal_name) == (0, "bob")
        assert made.token_requester_principal_name == "ann"
        # As in Kafka: who has asked for a token sees it.
        assert set(described(ann)) == {others.token_id, made.token_id}
        add_acls(broker, [allow(DESCRIBE_TOKENS, USER, "User:bob", principal="User:ann")])
        assert set(described(ann, "bob")) == set(described(eve)) == {others.token_id, made.token_id}


def challenge(broker: RunningBroker, token_id: str, mechanism: str) -> bytes:
    """Without its nonce."""
    with RawClient(broker.server.ports["SASL_PLAINTEXT"]) as client:
        client.ask("SaslHandshake", 1, SaslHandshakeRequest(mechanism=mechanism))
        message = ScramClient(mechanism, token_id, "x", is_token=True).first()
        answer = client.ask("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=message))
        challenge: bytes = answer.auth_bytes.partition(b",s=")[2]
        return challenge


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_log_in_does_not_tell_which_tokens_exist(
    tmp_path: Path, mechanism: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The challenge of a token stays the same, as that of an id that does not exist, and costs no hashing."""
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    with RunningBroker(tmp_path, ENABLED) as broker:
        with RawClient(broker.server.ports["PLAINTEXT"]) as client:
            # Users that do not exist look like this one.
            upsertion = ScramCredentialUpsertion(
                name="x",
                mechanism=1 if mechanism.endswith("256") else 2,
                iterations=8192,
                salt=bytes(9),
                salted_password=bytes(64),
            )
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            assert client.ask("AlterUserScramCredentials", 0, request).results[0].error_code == 0
        with connect(broker, "ann") as client:
            token_id = create(client).token_id
        monkeypatch.setattr("barnabas.coordination.writing.token_keys.keys_of", None)
        real, none = challenge(broker, token_id, mechanism), challenge(broker, "nobody", mechanism)
        assert real.rpartition(b",")[2] == none.rpartition(b",")[2] == b"i=4096"
        assert len(real) == len(none)
        monkeypatch.undo()
    assert f"Set {mechanism} credential of User:x by User:ANONYMOUS" in caplog.text
    assert f"Created delegation token {token_id} of User:ann by User:ann" in caplog.text
    with RunningBroker(tmp_path, ENABLED) as broker:
        assert (challenge(broker, token_id, mechanism), challenge(broker, "nobody", mechanism)) == (
            real,
            none,
        )
