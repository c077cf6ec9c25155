"""Settings of TLS and SASL that change at run time, and what a broker does with them when it starts again."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from barnabas.broker.authentication.inter_broker import inter_broker_security, usable_inter_broker_security
from barnabas.config.broker_config import BrokerConfig
from barnabas.errors import InvalidConfig
from barnabas.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata_request import MetadataRequest
from tests.broker.authentication.test_sasl import PLAIN_ANN, PLAIN_MODULE, authenticate, choose
from tests.broker.authentication.test_tls import connect, der, served, served_certificate, set_broker_config
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker
from tests.security.certificates import certificates, other_certificates, tls_settings_of, write_certificates

INVALID_REQUEST = 42
SET, DELETE, APPEND = 0, 1, 2
JAAS_NAME = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
REAUTH_NAME = "listener.name.sasl_plaintext.plain.connections.max.reauth.ms"
ONE_LISTENER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "connection.failed.authentication.delay.ms": "0",
    JAAS_NAME: f'{PLAIN_MODULE} required user_ann="secret";',
}


def alter_broker(
    running: RunningBroker,
    name: str,
    value: str | None,
    *,
    for_all: bool = False,
    operation: int | None = None,
) -> tuple[int, str]:
    if operation is None:
        operation = DELETE if value is None else SET
    change = AlterableConfig(name=name, config_operation=operation, value=value)
    broker_id = "" if for_all else str(running.server.broker.replicas.broker_id)
    resource = AlterConfigsResource(resource_type=4, resource_name=broker_id, configs=[change])
    with running.client() as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        [answer] = client.ask("IncrementalAlterConfigs", 1, request).responses
    return answer.error_code, answer.error_message or ""


def can_log_in(running: RunningBroker, message: bytes) -> bool:
    with RawClient(running.server.ports["SASL_PLAINTEXT"]) as client:
        assert choose(client, "PLAIN").error_code == 0
        return bool(authenticate(client, message).error_code == 0)


def test_users_of_plain_change_at_run_time(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, ONE_LISTENER) as running:
        broker_id = str(running.server.broker.replicas.broker_id)
        for value, is_known in ((f'{PLAIN_MODULE} required user_eve="new";', True), (None, False)):
            assert alter_broker(running, JAAS_NAME, value) == (0, "")
            with running.client() as client:
                described = client.ask(
                    "DescribeConfigs",
                    4,
                    DescribeConfigsRequest(
                        resources=[DescribeConfigsResource(resource_type=4, resource_name=broker_id)]
                    ),
                )
            entries = {each.name: each for each in described.results[0].configs}
            assert entries[JAAS_NAME].value is None
            assert entries[JAAS_NAME].is_sensitive
            assert can_log_in(running, b"\0eve\0new") == is_known


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (JAAS_NAME, "nonsense hush", JAAS_NAME),
        (JAAS_NAME, f"{PLAIN_MODULE} required;", f"{JAAS_NAME} names no user"),
        (REAUTH_NAME, "abc", "Invalid value abc"),
        ("listener.name.sasl_plaintext.sasl.enabled.mechanisms", "PLAIN,NOPE", "NOPE is not supported"),
        ("sasl.enabled.mechanisms", "PLAIN,NOPE", "NOPE is not supported"),
        ("sasl.enabled.mechanisms", "PLAIN,OAUTHBEARER", "jwks.endpoint.url is missing"),
    ],
)
def test_sasl_that_could_not_be_used_is_refused_at_run_time(
    tmp_path: Path, name: str, value: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with RunningBroker(tmp_path, ONE_LISTENER) as running:
            code, message = alter_broker(running, name, value)
            assert code == INVALID_REQUEST
            assert says in message
            assert "hush" not in message
            assert can_log_in(running, PLAIN_ANN)
    assert "hush" not in caplog.text


def test_a_mechanism_that_could_not_be_used_is_not_added(tmp_path: Path) -> None:
    name = "sasl.enabled.mechanisms"
    with RunningBroker(tmp_path, ONE_LISTENER) as running:
        assert alter_broker(running, name, "PLAIN") == (0, "")
        code, message = alter_broker(running, name, "NOPE", operation=APPEND)
        assert (code, "NOPE is not supported" in message) == (INVALID_REQUEST, True)
        assert alter_broker(running, name, "SCRAM-SHA-256", operation=APPEND) == (0, "")
        with RawClient(running.server.ports["SASL_PLAINTEXT"]) as client:
            assert choose(client, "SCRAM-SHA-256").mechanisms == ["PLAIN", "SCRAM-SHA-256"]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (JAAS_NAME, "nonsense", JAAS_NAME),
        ("sasl.enabled.mechanisms", "PLAIN,NOPE", "sasl.enabled.mechanisms=PLAIN,NOPE"),
        (REAUTH_NAME, "abc", REAUTH_NAME),
    ],
)
def test_a_broker_starts_with_stored_sasl_that_cannot_be_used(
    tmp_path: Path, name: str, value: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It uses its file: other versions, and tools that write to ZooKeeper, check less."""
    with RunningBroker(tmp_path, ONE_LISTENER) as running:
        broker = running.server.broker
        broker_id = str(broker.replicas.broker_id)
        stored = {broker_id: lambda _: {name: value}}
        assert running.call(lambda: broker.writer.alter_broker_configs(stored)) == {broker_id: None}
    caplog.clear()
    with RunningBroker(tmp_path, ONE_LISTENER) as running:
        assert says in "".join(each.getMessage() for each in caplog.records if each.levelname == "ERROR")
        assert can_log_in(running, PLAIN_ANN)
        assert not can_log_in(running, b"\0ann\0other")
        with RawClient(running.server.ports["SASL_PLAINTEXT"]) as client:
            client.send("Metadata", 9, MetadataRequest(topics=[]))
            assert client.is_closed_by_broker()
        # It is in the way of no other change.
        assert alter_broker(running, "max.connections", "1000") == (0, "")
        assert alter_broker(running, name, None) == (0, "")


def test_users_are_not_set_for_all_brokers(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, ONE_LISTENER) as running:
        code, message = alter_broker(
            running, JAAS_NAME, f'{PLAIN_MODULE} required user_eve="new";', for_all=True
        )
        assert code == INVALID_REQUEST
        assert message.startswith(
            "Cannot update these configs at default cluster level, broker id must be specified"
        )
        # Older versions have stored such settings. They are not used, and in the way of no other change.
        broker = running.server.broker
        stored = {"": lambda _: {JAAS_NAME: f'{PLAIN_MODULE} required user_eve="new";', REAUTH_NAME: "5"}}
        assert running.call(lambda: broker.writer.alter_broker_configs(stored)) == {"": None}
        for name in ("max.connections", JAAS_NAME, REAUTH_NAME):
            assert alter_broker(running, name, "5" if name == "max.connections" else None, for_all=True) == (
                0,
                "",
            )
            assert not can_log_in(running, b"\0eve\0new")
        assert broker.image.broker_config("") == {"max.connections": "5"}


def test_inter_broker_settings_of_run_time_that_cannot_be_used(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig(
        {
            **ONE_LISTENER,
            JAAS_NAME: f'{PLAIN_MODULE} required username="ann" password="secret" user_ann="secret";',
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
        }
    )
    assert usable_inter_broker_security(config) is not None
    users_only = {JAAS_NAME: f'{PLAIN_MODULE} required user_ann="secret";'}
    changed = config.with_dynamic(default={}, broker=users_only)
    with pytest.raises(InvalidConfig, match=JAAS_NAME):
        inter_broker_security(changed)
    assert usable_inter_broker_security(changed) is not None
    assert JAAS_NAME in caplog.text


def test_certificates_of_the_settings_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If they cannot be used then, the broker uses those of its file."""
    folder = tmp_path / "first"
    folder.mkdir()
    write_certificates(folder)
    later = other_certificates()
    path = write_certificates(tmp_path, later) / "server.pem"
    settings = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        **tls_settings_of(folder),
        "ssl.client.auth": "required",
    }
    name = "listener.name.ssl.ssl.keystore.location"
    with RunningBroker(tmp_path / "data", settings) as broker:
        assert set_broker_config(broker, name, str(path)) is None
    with RunningBroker(tmp_path / "data", settings) as broker:
        assert served_certificate(broker) == der(later)
    path.unlink()
    with RunningBroker(tmp_path / "data", settings) as broker:
        assert served_certificate(broker) == der(certificates())
        with pytest.raises((ssl.SSLError, ConnectionError)), connect(broker, folder) as client:
            served(client)
        with connect(broker, folder, user="ann") as client:
            assert served(client)
    assert f"{name}={path} cannot be read" in caplog.text
