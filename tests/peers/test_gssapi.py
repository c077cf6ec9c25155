"""GSSAPI with a real KDC: our clients against Apache Kafka 4.3.1, and other people's clients against our broker."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import barnabas
from barnabas.errors import SaslAuthenticationFailed
from barnabas.testing import free_port
from tests.broker.running import RunningBroker
from tests.client.consumer_servers import KafkaProcess
from tests.interop.programs import available, java, run
from tests.peers.kafka_peer import V4, PeerUnavailable
from tests.security.kdc import Kdc, client_settings, keytab_entry, running_kdc, sasl_settings
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

VALUES = [b"a", b"b" * 300_000, b"c"]


class Realm(NamedTuple):
    kdc: Kdc
    kafka: Path
    ann: Path


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as kdc, pytest.MonkeyPatch.context() as patch:
        found = Realm(kdc, kdc.add("kafka/localhost"), kdc.add("ann"))
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.krb5_conf}")
        # Clients in Python take the tickets of the environment.
        patch.setenv("KRB5CCNAME", kdc.kinit(found.ann, "ann"))
        yield found


@pytest.fixture(scope="module")
def broker(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0,PLAINTEXT://localhost:0",
        **sasl_settings("sasl_plaintext", realm.kafka),
    }
    with RunningBroker(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


def read_by_ours(settings: dict[str, Any], topic: str, count: int) -> list[Any]:
    found: list[Any] = []
    with barnabas.Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(topic, 0)])
        wait_until(lambda: len(found) >= count, meanwhile=lambda: found.extend(consumer.poll(1_000)))
    return [each.value for each in found]


def test_our_clients_and_kafka(realm: Realm, tmp_path: Path) -> None:
    port = free_port()
    try:
        process = KafkaProcess(
            tmp_path / "data",
            V4,
            listeners={"SASL_PLAINTEXT": port},
            settings=sasl_settings("sasl_plaintext", realm.kafka),
        )
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    properties = tmp_path / "data.properties"
    properties.write_text(
        properties.read_text().replace(
            f"SASL_PLAINTEXT://127.0.0.1:{port}", f"SASL_PLAINTEXT://localhost:{port}"
        )
    )
    with process:
        settings = client_settings(port, keytab_entry(realm.ann, "ann"))
        with barnabas.Admin(settings) as admin:
            admin.create_topics(["t"])
        with barnabas.Producer(settings) as producer:
            for value in VALUES:
                producer.send("t", value=value)
        assert read_by_ours(settings, "t", len(VALUES)) == VALUES
        # A ticket for a key that the broker does not have yet.
        realm.kdc.kadmin("cpw -randkey kafka/localhost")
        other = realm.kdc.add("bob")
        settings["sasl.jaas.config"] = keytab_entry(other, "bob")
        with (
            pytest.raises(
                SaslAuthenticationFailed, match="due to invalid credentials with SASL mechanism GSSAPI"
            ),
            barnabas.Admin(settings) as admin,
        ):
            admin.describe_cluster()
    realm.kdc.kadmin(f"ktadd -k {realm.kafka} -norandkey kafka/localhost")


def test_java_and_our_broker(realm: Realm, broker: RunningBroker, tmp_path: Path) -> None:
    settings = client_settings(broker.server.ports["SASL_PLAINTEXT"], keytab_entry(realm.ann, "ann"))
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    address = ["--bootstrap-server", settings["bootstrap.servers"], "--topic", "java"]
    producer = available(lambda: java(V4, "org.apache.kafka.tools.ConsoleProducer"))
    run([*producer, *address, "--producer.config", str(file)], stdin="one\ntwo\n")
    assert read_by_ours(settings, "java", 2) == [b"one", b"two"]


def python_settings(broker: RunningBroker) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"localhost:{broker.server.ports['SASL_PLAINTEXT']}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": "localhost",
    }


def test_kafka_python(broker: RunningBroker) -> None:
    with warnings.catch_warnings():
        # It reads its schemas in a way that Python has replaced.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaProducer

    producer = KafkaProducer(**python_settings(broker))
    assert producer.send("kafka-python", b"x").get(60).offset == 0
    producer.close()


def test_aiokafka(broker: RunningBroker) -> None:
    from aiokafka import AIOKafkaProducer

    async def send() -> int:
        async with AIOKafkaProducer(**python_settings(broker)) as producer:
            sent = await producer.send_and_wait("aiokafka", b"x")
            offset: int = sent.offset
            return offset

    assert asyncio.run(send()) == 0
