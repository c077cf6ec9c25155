"""Passwords among the settings at run time are encrypted in the store, and used."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.settings.stored_passwords import decoded, encoded
from barnabas.config.broker_config import BrokerConfig
from barnabas.errors import InvalidConfig
from barnabas.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.security.jaas import PLAIN
from barnabas.security.password_encoder import is_encoded
from tests.broker.authentication.test_sasl import authenticate, choose
from tests.broker.raw_client import RawClient
from tests.broker.running import RunningBroker

BROKER = 4
NAME = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
OTHER = "listener.name.sasl_plaintext.ssl.key.password"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "connection.failed.authentication.delay.ms": "0",
    NAME: f'{PLAIN} required user_ann="of the file";',
}
SECRET, OLD_SECRET = "password.encoder.secret", "password.encoder.old.secret"


def alter(broker: RunningBroker, name: str, value: str) -> None:
    change = AlterableConfig(name=name, config_operation=0, value=value)
    broker_id = str(broker.server.broker.replicas.broker_id)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=broker_id, configs=[change])
    with RawClient(broker.server.ports["PLAINTEXT"]) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = client.ask("IncrementalAlterConfigs", 1, request).responses[0]
        assert answer.error_code == 0, answer.error_message


def stored(broker: RunningBroker) -> dict[str, str]:
    image = broker.server.broker.image
    return dict(image.broker_config(str(broker.server.broker.replicas.broker_id)))


def can_log_in(broker: RunningBroker, password: str) -> bool:
    with RawClient(broker.server.ports["SASL_PLAINTEXT"]) as client:
        assert choose(client, "PLAIN").error_code == 0
        return bool(authenticate(client, f"\0ann\0{password}".encode()).error_code == 0)


def test_a_password_is_encrypted_and_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RunningBroker(tmp_path, SETTINGS) as broker:
        alter(broker, NAME, f'{PLAIN} required user_ann="first";')
        assert not is_encoded(stored(broker)[NAME])
    # What an older version has stored as it is gets encrypted.
    with RunningBroker(tmp_path, {**SETTINGS, SECRET: "one"}) as broker:
        assert is_encoded(stored(broker)[NAME])
        assert can_log_in(broker, "first")
        alter(broker, NAME, f'{PLAIN} required user_ann="second";')
        before = stored(broker)[NAME]
        alter(broker, "max.connections", "1000")
        assert stored(broker) == {NAME: before, "max.connections": "1000"}
        assert is_encoded(before)
        assert can_log_in(broker, "second")
    with RunningBroker(tmp_path, {**SETTINGS, SECRET: "two", OLD_SECRET: "one"}) as broker:
        assert stored(broker)[NAME] != before
        assert can_log_in(broker, "second")
    with RunningBroker(tmp_path, {**SETTINGS, SECRET: "two"}) as broker:
        assert can_log_in(broker, "second")
    with RunningBroker(tmp_path, {**SETTINGS, SECRET: "wrong"}) as broker:
        assert f"The password {NAME} is ignored: {SECRET} is not the one" in caplog.text
        assert can_log_in(broker, "of the file")
        # It is still there, for the right secret.
        assert is_encoded(stored(broker)[NAME])
    assert "second" not in caplog.text


def test_zookeeper_gets_no_password_without_a_secret() -> None:
    """As with Kafka 3.9."""
    settings = {"zookeeper.connect": "localhost:2181", "broker.id": "1"}
    with pytest.raises(InvalidConfig, match="Password encoder secret not configured"):
        encoded(BrokerConfig(settings), {OTHER: "hush"})
    assert encoded(BrokerConfig(settings), {"num.io.threads": "4"}) == {"num.io.threads": "4"}
    config = BrokerConfig({**settings, SECRET: "x", "password.encoder.cipher.algorithm": "AES/GCM/NoPadding"})
    text = encoded(config, {OTHER: "hush"})[OTHER]
    assert is_encoded(text)
    assert decoded(config, {OTHER: text, "a": "b"}) == {OTHER: "hush", "a": "b"}
    assert decoded(BrokerConfig(settings), {OTHER: text}) == {}


def test_an_encoder_that_cannot_be_used(tmp_path: Path) -> None:
    broker = RunningBroker(
        tmp_path, {**SETTINGS, SECRET: "x", "password.encoder.cipher.algorithm": "DES/CBC"}
    )
    with pytest.raises(InvalidConfig, match=r"password.encoder.cipher.algorithm=DES/CBC: set it to one of"):
        broker.start()
