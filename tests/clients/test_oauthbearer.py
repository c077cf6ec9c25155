"""Tokens: other people's clients and ours, with the keys of an issuer in a file."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

import barnabas.aio
from barnabas.errors import SaslAuthenticationFailed
from barnabas.testing import Broker
from tests.waiting import Deadline

pytestmark = pytest.mark.slow

WAIT_S = 60
ISSUER = "https://issuer.test"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
UNSECURED_PACKAGE = "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
UNSECURED = f"{UNSECURED_PACKAGE}.OAuthBearerUnsecuredValidatorCallbackHandler"


@pytest.fixture(scope="module")
def key() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": "one"})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, key: ECKey) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    running = Broker(
        security="sasl_plaintext",
        topics=["t"],
        sasl_enabled_mechanisms="SCRAM-SHA-256,OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_expected_audience="kafka",
    )
    with running:
        yield running
        assert "Traceback" not in running.log()


def token(key: ECKey, lifetime_s: float = 600, **claims: Any) -> str:
    now_s = int(time.time())
    full = {
        "sub": "ann",
        "iss": ISSUER,
        "aud": "kafka",
        "iat": now_s,
        "exp": now_s + int(lifetime_s),
        **claims,
    }
    return jwt.encode({"alg": "ES256", "kid": "one"}, full, key)


def settings_of(**given: Any) -> dict[str, Any]:
    return {"sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": None, **given}


def test_ours_by_a_function(broker: Broker, key: ECKey) -> None:
    calls: list[float] = []

    def fetch() -> str:
        calls.append(time.time())
        return token(key)

    settings = settings_of(sasl_login_callback_handler_class=fetch)
    with broker.producer(**settings) as producer:
        producer.send("t", b"hello").result(WAIT_S)
    with broker.admin(**settings) as admin:
        assert [each.name for each in admin.list_topics()] == ["t"]
    # A client asks once for all its connections.
    assert len(calls) == 2


@pytest.mark.parametrize("claims", [{"iss": "other"}, {"aud": "other"}, {"exp": 1}])
def test_a_token_that_is_refused(broker: Broker, key: ECKey, claims: dict[str, Any]) -> None:
    settings = settings_of(sasl_login_callback_handler_class=lambda: token(key, **claims))
    with broker.admin(**settings) as admin, pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
        admin.list_topics()


def test_a_session_ends_with_its_token_and_is_renewed(broker: Broker, key: ECKey) -> None:
    """The broker allows for 30 s of skew when it takes a token; the session has the rest of its lifetime."""
    settings = settings_of(sasl_login_callback_handler_class=lambda: token(key, 3))
    with broker.admin(**settings) as admin:
        deadline = Deadline(WAIT_S)
        ends_s = time.monotonic() + 5
        while time.monotonic() < ends_s:
            assert admin.list_topics()
            deadline.check("too slow")
    assert "after the end of the session" not in broker.log()


class TokenEndpoint(http.server.BaseHTTPRequestHandler):
    key: ECKey
    forms: list[str]

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.forms.append(f"{self.headers['Authorization']} {self.rfile.read(size).decode()}")
        body = json.dumps({"access_token": token(self.key, sub="svc"), "token_type": "Bearer"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def test_ours_by_client_credentials(broker: Broker, key: ECKey) -> None:
    TokenEndpoint.key, TokenEndpoint.forms = key, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), TokenEndpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            settings = {
                "sasl_jaas_config": f'{MODULE} required clientId="svc" clientSecret="hush" scope="read";',
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": f"http://127.0.0.1:{server.server_address[1]}/token",
            }
            with broker.admin(**settings) as admin:
                assert admin.list_topics()
        finally:
            server.shutdown()
            thread.join()
    assert TokenEndpoint.forms == ["Basic c3ZjOmh1c2g= grant_type=client_credentials&scope=read"]


def test_confluent_kafka(broker: Broker, key: ECKey) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(key), time.time() + 600),
        }
    )
    failures: list[Any] = []
    producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None]


def test_aiokafka(broker: Broker, key: ECKey) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token(key)

    async def produce() -> int:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        ) as producer:
            found = await producer.send_and_wait("t", b"x")
            offset: int = found.offset
            return offset

    assert asyncio.run(produce()) >= 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_kafka_python(broker: Broker, key: ECKey) -> None:
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token(key)

    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    assert producer.send("t", b"x").get(WAIT_S).offset >= 0
    producer.close()


def test_ours_with_asyncio(broker: Broker, key: ECKey) -> None:
    settings = settings_of(sasl_login_callback_handler_class=lambda: token(key))

    async def there_and_back() -> bytes | None:
        common = {"bootstrap_servers": broker.bootstrap, "security_protocol": "SASL_PLAINTEXT", **settings}
        async with barnabas.aio.Producer(**common) as producer:
            sent = await producer.send_and_wait("t", b"async")
        async with barnabas.aio.Consumer(**common) as consumer:
            consumer.assign([(sent.topic, sent.partition)])
            consumer.seek((sent.topic, sent.partition), sent.offset)
            [record] = await consumer.poll(timeout_ms=WAIT_S * 1_000, max_records=1)
            value: bytes | None = record.value
            return value

    assert asyncio.run(there_and_back()) == b"async"


def test_tokens_without_signatures_if_asked_for(tmp_path: Path) -> None:
    running = Broker(security="sasl_plaintext", sasl_enabled_mechanisms="SCRAM-SHA-256,OAUTHBEARER")
    running._settings["listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"] = (
        UNSECURED
    )
    with running as broker:
        jaas = f'{MODULE} required unsecuredLoginStringClaim_sub="ann";'
        with broker.admin(sasl_mechanism="OAUTHBEARER", sasl_jaas_config=jaas) as admin:
            assert admin.list_topics() == []
        assert "accepts tokens without signatures" in broker.log()
