"""OAUTHBEARER on the wire: what anybody may send, and when the broker asks the issuer for keys."""

from __future__ import annotations

import http.server
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listener_settings import ListenerSettings
from barnabas.errors import InvalidConfig
from barnabas.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.security.oauthbearer import OAuthBearerClient, unsecured_token
from tests.broker.authentication.test_sasl import authenticate, choose, served
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker

SASL_AUTHENTICATION_FAILED = 58
BROKER = 4
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class"
UNSECURED = f"{MODULE.rpartition('.')[0]}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
JAAS = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "connection.failed.authentication.delay.ms": "10",
}
NOW_S = 1_700_000_000
END_S = 4_000_000_000


class Issuer(http.server.ThreadingHTTPServer):
    """Serves keys, and counts how often."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), KeysHandler)
        self.key = ECKey.generate_key("P-256", {"kid": "one"})
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/keys"


class KeysHandler(http.server.BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        self.server.requests.append(threading.current_thread().name)
        body = json.dumps(KeySet([self.server.key]).as_dict(private=False)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[RunningBroker]:
    settings = {**SETTINGS, "sasl.oauthbearer.jwks.endpoint.url": issuer.url}
    with RunningBroker(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


def with_token(port: int, token: str) -> int:
    with RawClient(port) as client:
        assert choose(client, "OAUTHBEARER").error_code == 0
        exchange = OAuthBearerClient(token)
        answer = authenticate(client, exchange.first())
        if answer.auth_bytes:
            answer = authenticate(client, exchange.step(answer.auth_bytes))
            assert client.is_closed_by_broker()
        else:
            assert served(client)
        code: int = answer.error_code
        return code


def failures(broker: RunningBroker) -> float:
    name = "kafka_server_socketservermetrics_failed_authentication_total"
    lines = "".join(broker.server.broker.metrics.lines()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))


def test_the_keys_are_fetched_once(broker: RunningBroker, issuer: Issuer) -> None:
    """A change of other settings at run time asks the issuer for nothing."""
    assert len(issuer.requests) == 1
    change = AlterableConfig(name="max.connections", config_operation=0, value="1000")
    name = str(broker.server.broker.replicas.broker_id)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[change])
    with RawClient(broker.server.ports["PLAINTEXT"]) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        assert client.ask("IncrementalAlterConfigs", 1, request).responses[0].error_code == 0
    assert broker.server.broker.settings.current.max_connections == 1000
    token = jwt.encode({"alg": "ES256", "kid": "one"}, {"sub": "ann", "iat": NOW_S, "exp": END_S}, issuer.key)
    assert with_token(broker.server.ports["SASL_PLAINTEXT"], token) == 0
    assert len(issuer.requests) == 1


@pytest.mark.parametrize("header", ["[" * 40_000, '{"alg":"ES256","kid":"one","crit":5}', '{"alg":[]}', "7"])
def test_any_token_is_answered(broker: RunningBroker, header: str, caplog: pytest.LogCaptureFixture) -> None:
    import base64

    before = failures(broker)
    token = base64.urlsafe_b64encode(header.encode()).decode().rstrip("=") + ".e30.AAAA"
    with caplog.at_level(logging.INFO):
        assert with_token(broker.server.ports["SASL_PLAINTEXT"], token) == SASL_AUTHENTICATION_FAILED
    assert failures(broker) == before + 1
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.exc_info]


def test_the_scope_that_a_jaas_entry_asks_for(tmp_path: Path) -> None:
    options = (
        'unsecuredValidatorRequiredScope="LOGIN" unsecuredValidatorScopeClaimName="scp"'
        ' unsecuredValidatorPrincipalClaimName="email" unsecuredValidatorAllowableClockSkewMs="3000"'
    )
    settings = {**SETTINGS, HANDLER: UNSECURED, JAAS: f"{MODULE} required {options};"}
    with RunningBroker(tmp_path, settings) as running:
        port = running.server.ports["SASL_PLAINTEXT"]
        claims = {"email": "ann@x", "exp": END_S}
        assert with_token(port, unsecured_token({**claims, "scp": ["LOGIN", "x"]})) == 0
        assert with_token(port, unsecured_token({**claims, "scp": ["x"]})) == SASL_AUTHENTICATION_FAILED
        assert (
            with_token(port, unsecured_token({"sub": "a", "exp": END_S, "scp": "LOGIN"}))
            == SASL_AUTHENTICATION_FAILED
        )


@pytest.mark.parametrize(
    ("handler", "options", "says"),
    [
        (None, 'unsecuredValidatorRequiredScope="x"', "this listener asks for signed tokens"),
        (
            UNSECURED,
            'unsecuredValidatorRequiredScop="x"',
            "there is no option unsecuredValidatorRequiredScop",
        ),
        (UNSECURED, 'unsecuredValidatorAllowableClockSkewMs="-1"', "milliseconds"),
    ],
)
def test_options_without_effect(handler: str | None, options: str, says: str) -> None:
    from barnabas.broker.authentication.issuer_keys import IssuerKeys
    from barnabas.broker.authentication.oauthbearer import new_oauthbearer

    given = {**SETTINGS, JAAS: f"{MODULE} required {options};", **({HANDLER: handler} if handler else {})}
    settings = ListenerSettings(BrokerConfig(given), "SASL_PLAINTEXT")
    with pytest.raises(InvalidConfig, match=says):
        new_oauthbearer(settings, lambda: 0, IssuerKeys())
