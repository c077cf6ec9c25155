"""Settings of clients: names, values, and what a person is told of a wrong one."""

from __future__ import annotations

import pytest

from barnabas.client.settings import ProducerSettings, parse_address
from barnabas.config.definition import InvalidSetting, UnknownSetting
from barnabas.errors import InvalidConfig

SERVERS = "localhost:9092"


def test_keywords_and_a_mapping_say_the_same() -> None:
    keywords = ProducerSettings(bootstrap_servers="a:1, b:2", linger_ms=20, acks=1)
    mapping = ProducerSettings({"bootstrap.servers": ["a:1", "b:2"], "linger.ms": "20", "acks": "1"})
    for settings in (keywords, mapping):
        assert settings.bootstrap == (("a", 1), ("b", 2))
        assert settings.linger_ms == 20
        assert settings.acks_number == 1
        assert not settings.enable_idempotence


def test_defaults_are_those_of_kafka() -> None:
    settings = ProducerSettings(bootstrap_servers=SERVERS)
    assert settings.acks_number == -1
    assert settings.enable_idempotence
    assert settings.batch_size == 16384
    assert settings.buffer_memory == 32 << 20
    assert settings.max_in_flight_requests_per_connection == 5
    assert settings.delivery_timeout_ms == 120_000


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"linger_msec": 5}, "linger.ms"),
        ({"bootstrap_server": SERVERS}, "bootstrap.servers"),
        ({"compresion.type": "lz4"}, "compression.type"),
    ],
)
def test_an_unknown_name_raises_with_the_nearest(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(UnknownSetting, match=says):
        ProducerSettings({"bootstrap.servers": SERVERS, **wrong})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger.ms", -1),
        ("linger.ms", "soon"),
        ("linger.ms", 1.5),
        ("linger.ms", True),
        ("acks", 2),
        ("enable.idempotence", 1),
        ("compression.type", "brotli"),
        ("bootstrap.servers", "localhost"),
        ("bootstrap.servers", "localhost:http"),
        ("bootstrap.servers", 9092),
        ("security.protocol", "TLS"),
        ("transactional.id", ""),
        ("batch.size", object()),
    ],
)
def test_a_wrong_value_names_the_setting(name: str, value: object) -> None:
    with pytest.raises(InvalidSetting, match=name):
        ProducerSettings({"bootstrap.servers": SERVERS, name: value})


@pytest.mark.parametrize(
    "together",
    [
        {"enable_idempotence": True, "acks": 1},
        {"enable_idempotence": True, "retries": 0},
        {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
        {"transactional_id": "t", "enable_idempotence": False},
        {"transactional_id": "t", "acks": 0},
        {"delivery_timeout_ms": 100},
        {"bootstrap_servers": None},
    ],
)
def test_settings_that_cannot_be_together(together: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig):
        ProducerSettings(**{"bootstrap_servers": SERVERS, **together})


def test_a_name_given_twice_raises() -> None:
    with pytest.raises(InvalidConfig, match="twice"):
        ProducerSettings({"bootstrap.servers": SERVERS, "linger.ms": 1}, linger_ms=2)


def test_addresses() -> None:
    assert parse_address("PLAINTEXT://host:9092") == ("host", 9092)
    assert parse_address("[::1]:9092") == ("::1", 9092)
