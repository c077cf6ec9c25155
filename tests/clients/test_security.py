"""Other people's clients with TLS and SASL, with each mechanism that they have."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import Broker
from tests.security.certificates import tls_settings_of, write_certificates

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python has replaced.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

WAIT_S = 60
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER, PASSWORD = "ann", 'a "quoted" secret'
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SASL = [(protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS]
VALUES = [b"first", b"x" * 200_000, b"last"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def brokers(folder: Path) -> Iterator[dict[str, Broker]]:
    """A broker for each security protocol."""
    running = {
        protocol: Broker(security=protocol, users={USER: PASSWORD}, topics=["t"])
        for protocol in ("sasl_plaintext", "sasl_ssl")
    }
    tls: dict[str, Any] = {name.replace(".", "_"): value for name, value in tls_settings_of(folder).items()}
    running["ssl"] = Broker(security="ssl", topics=[], ssl_client_auth="required", **tls)
    try:
        for broker in running.values():
            broker.start()
        yield running
        for broker in running.values():
            assert "Traceback" not in broker.log(), broker.log()
    finally:
        for broker in running.values():
            broker.close()


def authority_of(broker: Broker, folder: Path) -> str:
    """A file with the authority that the broker's certificate is signed by."""
    if broker._settings.get("ssl.keystore.location"):
        return str(folder / "ca.pem")
    path = folder / f"authority-{broker.port}.pem"
    path.write_text(broker.security_settings["ssl.truststore.certificates"])
    return str(path)


def confluent_settings(broker: Broker, protocol: str, mechanism: str, folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl.ca.location"] = authority_of(broker, folder)
    if protocol == "SSL":
        settings["ssl.certificate.location"] = settings["ssl.key.location"] = str(folder / "ann.pem")
    else:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    return settings


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "mechanism"), [*SASL, ("SSL", "")])
def test_confluent_kafka(brokers: dict[str, Broker], folder: Path, protocol: str, mechanism: str) -> None:
    from confluent_kafka import Consumer, Producer

    topic = f"confluent-{protocol}-{mechanism}"
    settings = confluent_settings(brokers[protocol.lower()], protocol, mechanism, folder)
    producer = Producer(settings)
    failures: list[Any] = []
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(WAIT_S) == 0
    assert failures == [None] * len(VALUES)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = consumer.consume(len(VALUES), WAIT_S)
    consumer.close()
    assert [message.value() for message in found] == VALUES


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "mechanism"), SASL)
def test_a_wrong_password_of_confluent_kafka(
    brokers: dict[str, Broker], folder: Path, protocol: str, mechanism: str
) -> None:
    from confluent_kafka import KafkaError, Producer

    errors: list[int] = []
    settings = confluent_settings(brokers[protocol.lower()], protocol, mechanism, folder)
    settings |= {
        "sasl.password": "wrong",
        "error_cb": lambda error: errors.append(error.code()),
        "log_level": 0,
    }
    producer = Producer(settings)
    for _ in range(WAIT_S):
        producer.poll(1)
        if errors:
            break
    assert KafkaError._AUTHENTICATION in errors


def python_settings(broker: Broker, protocol: str, mechanism: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "security_protocol": protocol}
    if protocol.startswith("SASL"):
        settings |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
    return settings


def tls_context(broker: Broker, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority_of(broker, folder))
    context.load_cert_chain(folder / "ann.pem")
    return context


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "mechanism"), [*SASL, ("SSL", "")])
def test_aiokafka(brokers: dict[str, Broker], folder: Path, protocol: str, mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic = f"aiokafka-{protocol}-{mechanism}"
    broker = brokers[protocol.lower()]
    settings = python_settings(broker, protocol, mechanism)
    if protocol.endswith("SSL"):
        settings["ssl_context"] = tls_context(broker, folder)

    async def exchange() -> list[bytes]:
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        consumer = AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest", group_id=topic)
        async with consumer:
            async with asyncio.timeout(WAIT_S):
                return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(exchange()) == VALUES


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(("protocol", "mechanism"), [*SASL, ("SSL", "")])
def test_kafka_python(brokers: dict[str, Broker], folder: Path, protocol: str, mechanism: str) -> None:
    topic = f"kafka-python-{protocol}-{mechanism}"
    broker = brokers[protocol.lower()]
    settings = python_settings(broker, protocol, mechanism)
    if protocol.endswith("SSL"):
        settings["ssl_context"] = tls_context(broker, folder)
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value).get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1_000
    )
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert found == VALUES


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "mechanism"), [*SASL, ("SSL", "")])
def test_ours(brokers: dict[str, Broker], folder: Path, protocol: str, mechanism: str) -> None:
    topic = f"ours-{protocol}-{mechanism}"
    broker = brokers[protocol.lower()]
    settings: dict[str, Any] = {}
    if protocol == "SSL":
        settings = {
            "ssl_truststore_certificates": None,
            "ssl_truststore_location": str(folder / "ca.pem"),
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": str(folder / "ann.pem"),
        }
    else:
        settings = {"sasl_mechanism": mechanism}
    with broker.producer(**settings) as producer:
        for value in VALUES:
            producer.send(topic, value=value)
    with broker.consumer(topic, **settings) as consumer:
        found: list[Any] = []
        for _ in range(WAIT_S):
            found += consumer.poll(1_000)
            if len(found) == len(VALUES):
                break
    assert [each.value for each in found] == VALUES
