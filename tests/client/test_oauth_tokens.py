"""Where a client gets its tokens from, by its settings."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from barnabas.client.settings import ClientSettings
from barnabas.errors import InvalidConfig, SaslAuthenticationFailed
from barnabas.peers.oauth_tokens import new_tokens
from barnabas.security.oauthbearer import claims_of

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
MODULE = f"{PACKAGE}.OAuthBearerLoginModule"
UNSECURED = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
COMMON = {
    "bootstrap.servers": "localhost:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
}
SUBJECT = f'{MODULE} required unsecuredLoginStringClaim_sub="ann";'
HANDLER = "sasl.login.callback.handler.class"
URL = "sasl.oauthbearer.token.endpoint.url"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({HANDLER: "com.example.Handler", "sasl.jaas.config": SUBJECT}, "cannot be used"),
        ({HANDLER: f"{PACKAGE}.OAuthBearerLoginCallbackHandler"}, f"needs {URL}"),
        ({HANDLER: UNSECURED, URL: "http://localhost/"}, "leave one of them out"),
        ({HANDLER: UNSECURED}, 'unsecuredLoginStringClaim_sub="USER"'),
        ({URL: "ftp://localhost/"}, "must begin with https:"),
        ({URL: "http://localhost/"}, "client.secret"),
        (
            {"sasl.jaas.config": SUBJECT.replace("_sub", "_exp")},
            "unsecuredLoginStringClaim_exp does not exist",
        ),
        ({"sasl.jaas.config": SUBJECT.replace("StringClaim_sub", "Lifetime")}, "Lifetime does not exist"),
        ({"sasl.jaas.config": SUBJECT[:-1] + ' unsecuredLoginLifetimeSeconds="x";'}, "must be a number"),
        ({"sasl.jaas.config": SUBJECT.replace(MODULE, "com.example.Module")}, "is not for OAUTHBEARER"),
        (
            {HANDLER: UNSECURED, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"},
            "has no effect with sasl.mechanism=PLAIN",
        ),
        ({"ssl.protocol": "TLSv1.2"}, "ssl.enabled.protocols"),
        ({"sasl.login.refresh.window.factor": "0.5"}, "leave it out"),
        ({"sasl.login.connect.timeout.ms": "100"}, "leave it out"),
    ],
)
def test_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        ClientSettings({**COMMON, **settings})


@pytest.mark.parametrize("handler", [None, UNSECURED])
def test_claims_of_a_token_without_signature(handler: str | None) -> None:
    options = {
        "unsecuredLoginStringClaim_email": "ann",
        "unsecuredLoginNumberClaim_level": "3",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginListClaim_none": "|",
        "unsecuredLoginLifetimeSeconds": "60",
        "unsecuredLoginPrincipalClaimName": "email",
        "unsecuredLoginExtension_trace": "7",
    }
    now_s = time.time()
    client = new_tokens({HANDLER: handler, URL: None}.__getitem__, options, "sasl.jaas.config").new_client()
    message = client.first().decode()
    _, claims = claims_of(message.split("Bearer ")[1].split("\x01")[0])
    assert now_s + 60 <= claims.pop("exp") <= time.time() + 60
    assert now_s <= claims.pop("iat") <= time.time()
    assert claims == {"email": "ann", "level": 3, "scope": ["read", "write"], "none": []}
    assert message.endswith("\x01trace=7\x01\x01")


def test_a_token_from_a_file(tmp_path: Path) -> None:
    """As Kafka's handler: another program writes the token."""
    path = tmp_path / "token"
    values = {HANDLER: f"{PACKAGE}.secured.OAuthBearerLoginCallbackHandler", URL: path.as_uri()}
    tokens = new_tokens(values.__getitem__, {}, "sasl.jaas.config")
    with pytest.raises(SaslAuthenticationFailed, match="cannot be read"):
        tokens.new_client()
    path.write_text("a.b.c\n")
    assert b"Bearer a.b.c\x01" in tokens.new_client().first()
    path.write_text(" ")
    with pytest.raises(SaslAuthenticationFailed, match="has no token"):
        tokens.new_client()
