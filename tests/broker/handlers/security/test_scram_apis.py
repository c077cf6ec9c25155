"""SCRAM credentials against a running broker: set, described, deleted, kept over restarts, and fit to log in with."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import errors
from barnabas.coordination.metadata.scram_credentials import (
    credential_texts,
    new_credential,
    user_credentials,
)
from barnabas.protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker

SHA_256, SHA_512 = 1, 2
SALT = b"0123456789abcdef"
ITERATIONS = 4_096


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path) as running:
        yield running


def salted(password: str, hash_name: str = "sha256", iterations: int = ITERATIONS) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), SALT, iterations)


def upsertion(
    name: str, mechanism: int = SHA_256, iterations: int = ITERATIONS, password: str = "secret"
) -> ScramCredentialUpsertion:
    hash_name = "sha512" if mechanism == SHA_512 else "sha256"
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=SALT,
        salted_password=salted(password, hash_name),
    )


def alter(
    client: RawClient, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    results = client.ask("AlterUserScramCredentials", 0, request).results
    return {each.user: (each.error_code, each.error_message) for each in results}


def describe(client: RawClient, *users: str) -> dict[str, tuple[int, dict[int, int]]]:
    """By user: the error, and the iterations by mechanism."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in users])
    response = client.ask("DescribeUserScramCredentials", 0, request)
    assert response.error_code == 0
    return {
        each.user: (
            each.error_code,
            {info.mechanism: info.iterations for info in each.credential_infos},
        )
        for each in response.results
    }


def test_credentials_are_set_replaced_and_deleted(broker: RunningBroker) -> None:
    with broker.client() as client:
        assert describe(client) == {}
        assert alter(client, upsertion("ann"), upsertion("ben", SHA_512)) == {
            "ann": (0, None),
            "ben": (0, None),
        }
        assert alter(client, upsertion("ann", SHA_512, 8_192)) == {"ann": (0, None)}
        assert describe(client) == {
            "ann": (0, {SHA_256: 4_096, SHA_512: 8_192}),
            "ben": (0, {SHA_512: 4_096}),
        }
        assert alter(client, ScramCredentialDeletion(name="ann", mechanism=SHA_256)) == {"ann": (0, None)}
        assert describe(client, "ann", "nobody") == {
            "ann": (0, {SHA_512: 8_192}),
            "nobody": (errors.ResourceNotFound.code, {}),
        }
        assert alter(client, ScramCredentialDeletion(name="ann", mechanism=SHA_512)) == {"ann": (0, None)}
        assert list(describe(client)) == ["ben"]
        assert describe(client, "ben", "ben") == {"ben": (errors.DuplicateResource.code, {})}


def test_they_are_kept_as_kafka_keeps_them(tmp_path: Path) -> None:
    """In the store beside the user's quotas, where a log-in can be verified with them and no password is."""
    with RunningBroker(tmp_path) as broker:
        with broker.client() as client:
            assert alter(client, upsertion("ann b/c"))["ann b/c"] == (0, None)
        store = broker.server.broker.writer._store
        data, _ = broker.call(lambda: store.get("/config/users/ann%20b%2Fc"))
    fields = dict(part.split("=", 1) for part in json.loads(data)["config"]["SCRAM-SHA-256"].split(","))
    client_key = hmac.digest(salted("secret"), b"Client Key", "sha256")
    assert fields == {
        "salt": base64.b64encode(SALT).decode(),
        "stored_key": base64.b64encode(hashlib.sha256(client_key).digest()).decode(),
        "server_key": base64.b64encode(hmac.digest(salted("secret"), b"Server Key", "sha256")).decode(),
        "iterations": "4096",
    }
    with RunningBroker(tmp_path) as broker, broker.client() as client:
        assert describe(client) == {"ann b/c": (0, {SHA_256: 4_096})}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsertion("c", iterations=4_095), errors.UnacceptableCredential, "Too few iterations"),
        (upsertion("c", iterations=16_385), errors.UnacceptableCredential, "Too many iterations"),
        (upsertion(""), errors.UnacceptableCredential, "Username must not be empty"),
        (
            upsertion("<default>"),
            errors.UnacceptableCredential,
            "A user named <default> cannot have credentials",
        ),
        (upsertion("c", 0), errors.UnsupportedSaslMechanism, "Unknown SCRAM mechanism"),
        (upsertion("c", 3), errors.UnsupportedSaslMechanism, "Unknown SCRAM mechanism"),
        (
            ScramCredentialDeletion(name="c", mechanism=SHA_256),
            errors.ResourceNotFound,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_changes_that_are_refused(
    broker: RunningBroker,
    change: ScramCredentialUpsertion | ScramCredentialDeletion,
    code: type[errors.KafkaError],
    message: str,
) -> None:
    with broker.client() as client:
        assert alter(client, change, upsertion("other")) == {
            change.name: (code.code, message),
            "other": (0, None),
        }
        assert list(describe(client)) == ["other"]


def test_a_user_is_named_once_in_a_request(broker: RunningBroker) -> None:
    twice = (errors.DuplicateResource.code, "A user credential cannot be altered twice in the same request")
    with broker.client() as client:
        alter(client, upsertion("ann"))
        deletion = ScramCredentialDeletion(name="ann", mechanism=SHA_256)
        assert alter(client, deletion, upsertion("ann", SHA_512)) == {"ann": twice}
        assert alter(client, upsertion("ann"), upsertion("ann", SHA_512), upsertion("ann")) == {"ann": twice}
        assert describe(client) == {"ann": (0, {SHA_256: 4_096})}


def test_the_text_of_a_credential_is_read_back() -> None:
    credential = new_credential("SCRAM-SHA-512", b"salt", b"salted password", 5_000)
    texts = credential_texts({"SCRAM-SHA-512": credential})
    assert user_credentials("/config/users/u", {**texts, "producer_byte_rate": "1"}) == {
        "SCRAM-SHA-512": credential
    }
    assert "salt" not in repr(credential)
