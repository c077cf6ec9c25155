"""SCRAM as a machine. The expected messages are those of RFC 7677 and of Apache Kafka's own test."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import time
from collections.abc import Callable
from functools import partial

import pytest

from barnabas.security.principal import USER, Principal
from barnabas.security.sasl import PlainClient, PlainServer, SaslClient, SaslFailed, SaslServer
from barnabas.security.scram import (
    Decoy,
    ScramAccount,
    ScramClient,
    ScramKeys,
    ScramServer,
    keys_of,
    salted_password,
)

SHA_256 = "SCRAM-SHA-256"
SHA_512 = "SCRAM-SHA-512"


def server_for(
    mechanism: str, users: dict[str, str], decoy: Decoy | None = None, nonce: str = "server-nonce"
) -> ScramServer:
    keys = {
        user: keys_of(mechanism, password, b"salt of " + user.encode(), 4096)
        for user, password in users.items()
    }

    def find(name: str, is_token: bool) -> ScramAccount | None:
        return None if is_token or name not in keys else ScramAccount(Principal(USER, name), keys[name])

    return ScramServer(mechanism, find, decoy or Decoy(b"secret"), new_nonce=lambda: nonce)


def test_a_credential_with_few_iterations_is_no_account(caplog: pytest.LogCaptureFixture) -> None:
    """As in Kafka. Whoever hears one log-in could guess the password too fast."""
    keys = keys_of(SHA_256, "pencil", b"salt of ann", 4095)
    decoy = Decoy(b"secret")
    server = ScramServer(SHA_256, lambda name, _: ScramAccount(Principal(USER, name), keys), decoy)
    challenge = server.step(b"n,,n=ann,r=nonce")
    salt = base64.b64encode(decoy.keys_for("ann", "sha256").salt)
    assert challenge.endswith(b",s=" + salt + b",i=4096")
    [line] = caplog.messages
    assert line.startswith("User ann cannot log in with SCRAM-SHA-256: its credential has 4095 iterations")
    # Also with a proof of the right password.
    salted = salted_password(SHA_256, "pencil", b"salt of ann", 4095)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    nonce = challenge.partition(b",")[0]
    signed = b"n=ann,r=nonce," + challenge + b",c=biws," + nonce
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    with pytest.raises(SaslFailed):
        server.step(b"c=biws," + nonce + b",p=" + base64.b64encode(proof))


class GuessingClient:
    """Spends no time on keys: its proof is a guess."""

    is_complete = False

    def __init__(self, user: str) -> None:
        self._user = user

    def first(self) -> bytes:
        return f"n,,n={self._user},r=nonce".encode()

    def step(self, message: bytes) -> bytes:
        nonce = message.partition(b",")[0]
        return b"c=biws," + nonce + b",p=" + base64.b64encode(bytes(32))


def test_the_exchange_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    keys = keys_of(SHA_256, "pencil", salt, 4096)
    server = ScramServer(
        SHA_256,
        lambda name, is_token: ScramAccount(Principal(USER, name), keys),
        Decoy(b""),
        new_nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    client = ScramClient(SHA_256, "user", "pencil", new_nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    first = client.first()
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = server.step(first)
    assert challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = client.step(challenge)
    assert final == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    answer = server.step(final)
    assert answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.step(answer)
    assert client.is_complete
    assert server.login is not None
    assert str(server.login.principal) == "User:user"


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("user", ["ann", "a,b=c", "Ünïcode"])
def test_log_in(mechanism: str, user: str) -> None:
    server, client = server_for(mechanism, {user: "pass wörd"}), ScramClient(mechanism, user, "pass wörd")
    client.step(server.step(client.step(server.step(client.first()))))
    assert server.login is not None
    assert server.login.principal == Principal(USER, user)


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_wrong_password_and_an_unknown_user_look_the_same(mechanism: str) -> None:
    like = keys_of(mechanism, "x", b"s" * 20, 8192)
    reasons = []
    for user in ("ann", "nobody"):
        server = server_for(mechanism, {"ann": "right"}, Decoy(b"secret", like))
        client = ScramClient(mechanism, user, "wrong")
        final = client.step(server.step(client.first()))
        with pytest.raises(SaslFailed) as caught:
            server.step(final)
        reasons.append(str(caught.value))
        assert server.login is None
    assert reasons[0] == reasons[1]


def refused_in_s(new_server: Callable[[], SaslServer], new_client: Callable[[], SaslClient]) -> float:
    """The processor time of a server for a hundred attempts that fail."""
    spent_s = 0.0
    for _ in range(100):
        server, client = new_server(), new_client()
        message = client.first()
        while True:
            began_s = time.process_time()
            try:
                answer = server.step(message)
            except SaslFailed:
                spent_s += time.process_time() - began_s
                break
            spent_s += time.process_time() - began_s
            message = client.step(answer)
    return spent_s


@pytest.mark.parametrize("mechanism", ["PLAIN", SHA_256])
def test_the_time_of_a_refusal_does_not_tell_whether_a_user_exists(mechanism: str) -> None:
    """And it is short: a server does not derive keys from passwords, whatever it is sent."""
    users = {"ann": "right"}
    like = keys_of(SHA_256, "x", b"s" * 20, 4096)
    account = ScramAccount(Principal(USER, "ann"), keys_of(SHA_256, "right", b"s" * 20, 4096))

    def new_server() -> SaslServer:
        if mechanism == "PLAIN":
            return PlainServer(users)
        return ScramServer(
            SHA_256, lambda name, _: account if name == "ann" else None, Decoy(b"secret", like)
        )

    def new_client(user: str) -> SaslClient:
        return PlainClient(user, "wrong") if mechanism == "PLAIN" else GuessingClient(user)

    best_s = {"ann": 1.0, "nobody": 1.0}
    for _ in range(20):
        for user in best_s:
            best_s[user] = min(best_s[user], refused_in_s(new_server, partial(new_client, user)))
    assert 0.5 < best_s["nobody"] / best_s["ann"] < 2, best_s
    assert best_s["ann"] / 100 < 0.001


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=ann,r=x" + b",a=b" * 4_000,
        b"n,,n=ann,r=x" + b",a=" * 4_000 + b"\0",
        b"n,," + b"n=" * 8_000,
        b"n,a=" + b"=2C" * 5_000,
        b"n,,n=" + b"=2C" * 5_000 + b",r=x",
    ],
)
def test_long_messages_take_little_time(message: bytes) -> None:
    began_s = time.process_time()
    with contextlib.suppress(SaslFailed):
        server_for(SHA_256, {}).step(message)
    assert time.process_time() - began_s < 0.1


def test_the_decoy_of_a_user_is_always_the_same_and_has_the_form_of_a_real_one() -> None:
    like = ScramKeys(b"0a1b2c3d4e5f6g7h8i9j0k1l2m", b"", b"", 8192)
    decoy = Decoy(b"secret of the cluster", like)
    first, again, other = (decoy.keys_for(user, "sha256") for user in ("eve", "eve", "mallory"))
    assert first == again
    assert first.salt != other.salt
    assert (len(first.salt), first.iterations) == (len(like.salt), 8192)
    assert first.salt.isalnum()
    assert len(Decoy(b"", like._replace(salt=bytes(32))).keys_for("eve", "sha256").salt) == 32


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"n,,n=ann",
        b"y,,n=ann,r=x",
        b"p=tls-unique,,n=ann,r=x",
        b"n,,m=ext,n=ann,r=x",
        b"n,,n=a=nn,r=x",
        b"n,a=bob,n=ann,r=x",
        b"n,,n=ann,r=with space",
        b"n,,n=" + b"a" * 20_000 + b",r=x",
    ],
)
def test_first_messages_that_are_refused(message: bytes) -> None:
    with pytest.raises(SaslFailed):
        server_for(SHA_256, {"ann": "x"}).step(message)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"c=biws", b"c=cD10bHM="),
        lambda text: text.replace(b"r=", b"r=x"),
        lambda text: text.partition(b",p=")[0],
        lambda text: text.partition(b",p=")[0] + b",p=AAAA",
        lambda text: text.partition(b",p=")[0] + b",p=!!!",
        lambda text: b"",
    ],
)
def test_final_messages_that_are_refused(change: object) -> None:
    assert callable(change)
    server, client = server_for(SHA_256, {"ann": "x"}), ScramClient(SHA_256, "ann", "x")
    final = client.step(server.step(client.first()))
    with pytest.raises(SaslFailed):
        server.step(change(final))
    assert server.login is None


def test_a_message_after_the_end_is_refused() -> None:
    server, client = server_for(SHA_256, {"ann": "x"}), ScramClient(SHA_256, "ann", "x")
    final = client.step(server.step(client.first()))
    server.step(final)
    with pytest.raises(SaslFailed):
        server.step(final)


@pytest.mark.parametrize(
    ("challenge", "says"),
    [
        (b"nonsense", "invalid message"),
        (b"r=other,s=c2FsdA==,i=4096", "nonce"),
        (b"r=mine,s=c2FsdA==,i=4096", "nonce"),
        (b"r=mine+theirs,s=c2FsdA==,i=1", "iterations"),
        (b"r=mine+theirs,s=c2FsdA==,i=900000000", "iterations"),
        (b"r=mine+theirs,s=!,i=4096", "invalid message"),
    ],
)
def test_a_client_refuses_what_a_false_broker_sends(challenge: bytes, says: str) -> None:
    client = ScramClient(SHA_256, "ann", "x", new_nonce=lambda: "mine")
    client.first()
    with pytest.raises(SaslFailed, match=says):
        client.step(challenge)


def test_a_client_refuses_a_broker_that_does_not_know_the_password() -> None:
    server, client = server_for(SHA_256, {"ann": "x"}), ScramClient(SHA_256, "ann", "x")
    client.step(server.step(client.first()))
    with pytest.raises(SaslFailed, match="does not know the password"):
        client.step(b"v=" + base64.b64encode(bytes(32)))
    assert not client.is_complete


def test_plain() -> None:
    server = PlainServer({"ann": "secret"})
    assert server.step(PlainClient("ann", "secret").first()) == b""
    assert server.login is not None
    assert str(server.login.principal) == "User:ann"
    assert PlainServer({"ann": "secret"}).step(b"ann\0ann\0secret") == b""


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"\0ann\0wrong", "Invalid username or password"),
        (b"\0bob\0secret", "Invalid username or password"),
        (b"\0ann\0secre", "Invalid username or password"),
        (b"bob\0ann\0secret", "different from username"),
        (b"\0ann", "expected 3 tokens, got 2"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0ann\0secret\0", "expected 3 tokens, got 4"),
        (b"\0\0secret", "username not specified"),
        (b"\0ann\0", "password not specified"),
        (b"\0\xff\0secret", "not UTF-8"),
    ],
)
def test_plain_refuses(message: bytes, says: str) -> None:
    server = PlainServer({"ann": "secret"})
    with pytest.raises(SaslFailed, match=says):
        server.step(message)
    assert server.login is None
