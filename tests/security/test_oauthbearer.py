"""OAUTHBEARER as a machine, with signed tokens and with others."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from barnabas.errors import InvalidConfig
from barnabas.security.oauthbearer import (
    ClaimRules,
    InvalidToken,
    OAuthBearerClient,
    OAuthBearerServer,
    unsecured_token,
    validate_unsecured,
)
from barnabas.security.sasl import Login, SaslFailed
from barnabas.security.signed_tokens import TokenKeys

NOW_S = 1_800_000_000
CLAIMS = {"sub": "ann", "exp": NOW_S + 600, "iss": "https://issuer", "aud": ["kafka", "other"], "iat": NOW_S}


@cache
def rsa() -> RSAKey:
    """Not when the module is loaded: to find primes takes a while."""
    return RSAKey.generate_key(2048, {"kid": "rsa"})


@cache
def ec(key_id: str = "ec", number: int = 0) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": key_id})


def rules(**given: Any) -> ClaimRules:
    return ClaimRules(now_ms=lambda: NOW_S * 1000, **given)


def keys(missing: Callable[[], None] = lambda: None) -> TokenKeys:
    found = TokenKeys(missing)
    found.use(json.dumps(KeySet([rsa(), ec()]).as_dict(private=False)).encode())
    return found


def validate(token: str) -> Login:
    return keys().validate(rules(issuer="https://issuer", audiences=("kafka",), is_signed=True), token)


def signed(
    key: Any = None, algorithm: str = "ES256", header: dict[str, Any] | None = None, **claims: Any
) -> str:
    key = key or ec()
    return jwt.encode(
        {"alg": algorithm, "kid": key.kid, **(header or {})},
        {**CLAIMS, **claims},
        key,
        algorithms=[algorithm],
    )


@pytest.mark.parametrize(("new_key", "algorithm"), [(rsa, "RS256"), (rsa, "PS512"), (ec, "ES256")])
def test_a_signed_token(new_key: Callable[[], Any], algorithm: str) -> None:
    key = new_key()
    server, client = (
        OAuthBearerServer(validate),
        OAuthBearerClient(signed(key, algorithm), {"pool": "a"}),
    )
    client.step(server.step(client.first()))
    assert client.is_complete
    assert server.login is not None
    assert str(server.login.principal) == "User:ann"
    assert server.login.expires_ms == (NOW_S + 600) * 1000


def signed_with_the_public_key() -> str:
    """With the public key as the secret of a signature that anybody can make."""
    header, claims = (
        base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=")
        for each in ({"alg": "HS256", "kid": "rsa"}, CLAIMS)
    )
    signature = hmac.digest(rsa().as_pem(private=False), header + b"." + claims, "sha256")
    return b".".join([header, claims, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def with_header(**given: Any) -> str:
    header = {"alg": "ES256", "kid": "ec", **given}
    return ".".join([encoded(json.dumps(header)), *signed().split(".")[1:]])


REFUSED: dict[str, Callable[[], str]] = {
    "expired": lambda: signed(exp=NOW_S - 31),
    "not yet": lambda: signed(nbf=NOW_S + 31),
    "issued later": lambda: signed(iat=NOW_S + 31),
    "issuer": lambda: signed(iss="https://other"),
    "audience": lambda: signed(aud="other"),
    "nobody": lambda: signed(sub=""),
    "a number": lambda: signed(sub=7),
    "no time": lambda: signed(exp="soon"),
    "no beginning": lambda: signed(iat=None),
    "ends before it begins": lambda: signed(exp=NOW_S, iat=NOW_S + 10),
    "blank scope": lambda: signed(scope=" "),
    "scope twice": lambda: signed(scope=["a", "a "]),
    "scope of another type": lambda: signed(scope=[1]),
    "no end": lambda: signed(exp=None),
    "key of another kind": lambda: signed(ec(), "ES256", {"kid": "rsa"}),
    "key of the same name": lambda: signed(ec("ec", 1)),
    "unknown key": lambda: signed(ec("unknown")),
    "public key": signed_with_the_public_key,
    "no signature": lambda: unsecured_token(CLAIMS),
    "other signature": lambda: signed()[:-4] + "AAAA",
    "no base 64": lambda: "a.b.c",
    "nonsense": lambda: "nonsense",
    "deep": lambda: f"{encoded('[' * 40_000)}.e30.",
    "deep claims": lambda: f"e30.{encoded('[' * 40_000)}.",
    "crit": lambda: with_header(crit=5),
    "b64": lambda: with_header(b64=[], crit=["b64"]),
    "algorithm": lambda: with_header(alg=[1]),
    "key id": lambda: with_header(kid={"a": 1}),
    "audience of another type": lambda: signed(aud=5),
    "audiences of another type": lambda: signed(aud=[5, None, ["kafka"]]),
    "audiences by name": lambda: signed(aud={"kafka": 1}),
    "line break": lambda: signed(sub="ann\nUser:root"),
    "line separator": lambda: signed(sub="ann\u2028User:root"),
    "escape": lambda: signed(sub="ann\x1b[2J"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tokens_that_are_refused(name: str) -> None:
    server, client = OAuthBearerServer(validate), OAuthBearerClient(REFUSED[name]())
    answer = server.step(client.first())
    assert json.loads(answer) == {"status": "invalid_token"}
    with pytest.raises(SaslFailed):
        server.step(client.step(answer))
    assert server.login is None
    with pytest.raises(SaslFailed):
        client.step(b"more")


def test_another_key_is_asked_for() -> None:
    asked: list[bool] = []
    with pytest.raises(InvalidToken):
        keys(lambda: asked.append(True)).validate(rules(), signed(ec("new")))
    assert asked


def test_clock_skew_and_another_claim() -> None:
    assert rules().login({"sub": "ann", "exp": NOW_S - 29}).principal.name == "ann"
    assert rules(subject_claim="email").login({"email": "a@b", "exp": NOW_S + 1}).principal.name == "a@b"


def test_the_scope_that_a_listener_asks_for() -> None:
    validate = partial(validate_unsecured, rules(scope_claim="scp", required_scope=("read", "write")))
    claims = {"sub": "ann", "exp": NOW_S + 600}
    for allowed in (["write", "read", "more"], [" read", "write "]):
        assert validate(unsecured_token({**claims, "scp": allowed})).principal.name == "ann"
    refused: list[Any] = ["read", "read write", ["read"], [], None, 5, [["read"], "write"]]
    for scope in refused:
        server, client = (
            OAuthBearerServer(validate),
            OAuthBearerClient(unsecured_token({**claims, "scp": scope})),
        )
        answer = server.step(client.first())
        assert json.loads(answer) == {"status": "insufficient_scope", "scope": "[read, write]"}, scope
        with pytest.raises(SaslFailed, match="insufficient_scope"):
            server.step(client.step(answer))


def test_an_audience_that_nobody_expects() -> None:
    """As Kafka: the token is for somebody else."""
    assert rules().login({"sub": "ann", "exp": NOW_S + 1, "aud": "other"})
    with pytest.raises(InvalidToken, match="aud"):
        rules(is_signed=True).login({"sub": "ann", "exp": NOW_S + 1, "iat": NOW_S, "aud": "other"})


def test_a_name_with_half_a_character() -> None:
    with pytest.raises(InvalidToken, match="characters that no name has"):
        validate_unsecured(rules(), unsecured_token({"sub": "ann\ud800", "exp": NOW_S + 1}))


def test_unsecured_tokens() -> None:
    validate = partial(validate_unsecured, rules(audiences=("kafka",)))
    server = OAuthBearerServer(validate)
    assert server.step(OAuthBearerClient(unsecured_token(CLAIMS)).first()) == b""
    assert server.login is not None
    with pytest.raises(InvalidToken):
        validate(signed())
    forged = (
        base64.urlsafe_b64encode(b'{"alg":"RS256"}').decode().rstrip("=") + "." + signed().split(".")[1] + "."
    )
    with pytest.raises(InvalidToken):
        validate(forged)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01other=x\x01\x01",
        b"\xff" * 100,
        b"n,,\x01auth=Bearer " + b"x" * 70_000 + b"\x01\x01",
    ],
)
def test_messages_that_are_refused(message: bytes) -> None:
    server = OAuthBearerServer(validate)
    with pytest.raises(SaslFailed):
        server.step(message)
    assert server.login is None


def test_another_authorization_id() -> None:
    server = OAuthBearerServer(validate)
    with pytest.raises(SaslFailed, match="different from the token"):
        server.step(b"n,a=bob,\x01auth=Bearer " + signed().encode() + b"\x01\x01")


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"[" * 40_000, b'{"keys": 7}', b'{"keys": [7]}', b'{"keys": [{"kty": "RSA"}]}', b"<html>"],
)
def test_what_is_no_key_set(text: bytes) -> None:
    with pytest.raises(InvalidConfig, match="no JWKS"):
        keys().use(text)
