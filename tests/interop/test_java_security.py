"""Java's clients with TLS and SASL: each mechanism, sessions that are renewed, and the tools for users."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from barnabas.testing import Broker
from tests.interop.programs import available, java, run
from tests.peers.kafka_peer import V3, V4
from tests.security.certificates import tls_settings_of, write_certificates

PRODUCER = {V3: "kafka.tools.ConsoleProducer", V4: "org.apache.kafka.tools.ConsoleProducer"}
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONFIGS = "kafka.admin.ConfigCommand"
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@pytest.fixture(params=[V3, V4])
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with Broker(
        security="sasl_ssl",
        users={"ann": "secret"},
        topics=["t"],
        connections_max_reauth_ms=2_000,
        delegation_token_secret_key="of the cluster",
    ) as running:
        (folder / "ca.pem").write_text(running.security_settings["ssl.truststore.certificates"])
        yield running
        assert "Traceback" not in running.log()


def config_file(folder: Path, user: str, password: str, mechanism: str) -> str:
    path = folder / f"{user}-{mechanism}.properties"
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{MODULES[mechanism]} required username="{user}" password="{password}";',
        "request.timeout.ms": "60000",
        "default.api.timeout.ms": "60000",
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.mark.parametrize("mechanism", MODULES)
def test_console_clients(broker: Broker, folder: Path, version: str, mechanism: str) -> None:
    topic = f"java-{version}-{mechanism}"
    config = config_file(folder, "ann", "secret", mechanism)
    address = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    lines = [f"line {number}" for number in range(200)]
    producer = available(lambda: java(version, PRODUCER[version]))
    run([*producer, *address, "--producer.config", config], stdin="\n".join(lines) + "\n")
    consumer = available(lambda: java(version, CONSUMER))
    printed = run(
        [*consumer, *address, "--consumer.config", config, "--from-beginning", "--max-messages", "200"]
    )
    assert [line for line in printed.splitlines() if line.startswith("line")] == lines


def test_sessions_are_renewed(broker: Broker, folder: Path, version: str) -> None:
    """A producer that takes longer than several sessions loses no record and no connection."""
    config = config_file(folder, "ann", "secret", "SCRAM-SHA-256")
    command = available(lambda: java(version, "org.apache.kafka.tools.ProducerPerformance"))
    printed = run(
        [
            *command,
            *("--topic", "t", "--num-records", "500", "--record-size", "100", "--throughput", "80"),
            *(
                "--producer.config",
                config,
                "--producer-props",
                f"bootstrap.servers={broker.bootstrap}",
                "acks=all",
            ),
        ]
    )
    assert "500 records sent" in printed
    assert "after the end of the session" not in broker.log()


def test_users_by_kafkas_tool(broker: Broker, folder: Path, version: str) -> None:
    config = config_file(folder, "ann", "secret", "SCRAM-SHA-512")
    tool = available(lambda: java(version, CONFIGS))
    address = ["--bootstrap-server", broker.bootstrap, "--command-config", config]
    entity = ["--entity-type", "users", "--entity-name", f"bob-{version}"]
    added = "SCRAM-SHA-256=[iterations=8192,password=hush]"
    run([*tool, *address, "--alter", "--add-config", added, *entity])
    assert "SCRAM-SHA-256=iterations=8192" in run([*tool, *address, "--describe", *entity])
    with broker.admin(
        sasl_jaas_config=f'{MODULES["SCRAM-SHA-256"]} required username="bob-{version}" password="hush";'
    ) as admin:
        assert admin.list_topics()
    run([*tool, *address, "--alter", "--delete-config", "SCRAM-SHA-256", *entity])


def test_delegation_tokens_by_kafkas_tool(broker: Broker, folder: Path, version: str) -> None:
    config = config_file(folder, "ann", "secret", "SCRAM-SHA-512")
    tool = available(lambda: java(version, "org.apache.kafka.tools.DelegationTokenCommand"))
    command = [*tool, "--bootstrap-server", broker.bootstrap, "--command-config", config]
    created = run([*command, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"])
    [line] = [each for each in created.splitlines() if "User:ann" in each]
    token_id, secret = line.split()[:2]
    assert token_id in run([*command, "--describe", "--owner-principal", "User:ann"])
    jaas = f'{MODULES["SCRAM-SHA-256"]} required username="{token_id}" password="{secret}" tokenauth="true";'
    with broker.admin(sasl_jaas_config=jaas) as admin:
        assert admin.list_topics()
    assert "Completed" in run([*command, "--renew", "--renew-time-period", "-1", "--hmac", secret])
    assert "Completed" in run([*command, "--expire", "--expiry-time-period", "-1", "--hmac", secret])
    assert token_id not in run([*command, "--describe", "--owner-principal", "User:ann"])


OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
# The handler moved; 4.x asks for a list of files that it may read.
HANDLERS = {
    V3: f"{OAUTHBEARER}.secured.OAuthBearerLoginCallbackHandler",
    V4: f"{OAUTHBEARER}.OAuthBearerLoginCallbackHandler",
}
ALLOWED_URLS = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="


def there_and_back(
    version: str, broker: Broker, topic: str, folder: Path, settings: dict[str, str], *options: str
) -> None:
    path = folder / f"{topic}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    address = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    for main, role, more in (
        (PRODUCER[version], "producer", []),
        (CONSUMER, "consumer", ["--from-beginning", "--max-messages", "2"]),
    ):
        command = available(lambda main=main: java(version, main))  # type: ignore[misc]
        command[1:1] = options
        printed = run([*command, *address, f"--{role}.config", str(path), *more], stdin="one\ntwo\n")
    assert [line for line in printed.splitlines() if line in ("one", "two")] == ["one", "two"]


def test_signed_tokens(folder: Path, version: str) -> None:
    key = ECKey.generate_key("P-256", {"kid": "one"})
    keys, token = folder / "jwks.json", folder / "token"
    keys.write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    now_s = int(time.time())
    claims = {"sub": "ann", "aud": "kafka", "iat": now_s, "exp": now_s + 600, "scope": "x"}
    token.write_text(jwt.encode({"alg": "ES256", "kid": "one"}, claims, key))
    with Broker(
        security="sasl_plaintext",
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_audience="kafka",
    ) as running:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTHBEARER}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": HANDLERS[version],
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
        options = (ALLOWED_URLS + token.as_uri(),)
        there_and_back(version, running, f"signed-{version}", folder, settings, *options)


def test_tokens_without_signatures(folder: Path, version: str) -> None:
    prefix = "listener.name.sasl_plaintext.oauthbearer."
    unsecured = "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    running = Broker(security="sasl_plaintext", sasl_enabled_mechanisms="OAUTHBEARER")
    running._settings |= {
        f"{prefix}sasl.server.callback.handler.class": f"{OAUTHBEARER}.{unsecured}",
        f"{prefix}sasl.jaas.config": (
            f'{OAUTHBEARER}.OAuthBearerLoginModule required unsecuredValidatorRequiredScope="LOGIN";'
        ),
    }
    jaas = f'{OAUTHBEARER}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="ann"'
    with running:
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f'{jaas} unsecuredLoginListClaim_scope="|READ|LOGIN";',
        }
        there_and_back(version, running, f"unsecured-{version}", folder, settings)


def test_certificates_of_clients(folder: Path, version: str) -> None:
    write_certificates(folder)
    tls = tls_settings_of(folder)
    named: dict[str, Any] = {name.replace(".", "_"): value for name, value in tls.items()}
    with Broker(security="ssl", ssl_client_auth="required", **named) as running:
        settings = {
            "security.protocol": "SSL",
            **tls,
            "ssl.keystore.location": str(folder / "ann.pem"),
        }
        there_and_back(version, running, f"mutual-{version}", folder, settings)


def test_passwords_without_tls(folder: Path, version: str) -> None:
    with Broker(security="sasl_plaintext", users={"ann": "secret"}) as running:
        there_and_back(version, running, f"plaintext-{version}", folder, dict(running.security_settings))
