"""Clients with Kerberos: librdkafka, and Java's clients over several sessions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker.running import RunningBroker
from tests.interop.programs import available, java, kcat_with_gssapi, run
from tests.peers.kafka_peer import V3, V4
from tests.security.kdc import REALM, Kdc, client_settings, keytab_entry, running_kdc, sasl_settings


class Secured(NamedTuple):
    kdc: Kdc
    port: int
    # Of the user ann.
    keytab: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as kdc:
        settings = {
            "listeners": "SASL_PLAINTEXT://localhost:0,PLAINTEXT://localhost:0",
            "connections.max.reauth.ms": "2000",
            **sasl_settings("sasl_plaintext", kdc.add("kafka/localhost")),
        }
        keytab = kdc.add("ann")
        with RunningBroker(tmp_path_factory.mktemp("broker"), settings) as broker:
            yield Secured(kdc, broker.server.ports["SASL_PLAINTEXT"], keytab)


def test_librdkafka(secured: Secured) -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": f"ann@{REALM}",
        "sasl.kerberos.keytab": str(secured.keytab),
    }
    options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    kcat = [*available(kcat_with_gssapi), "-b", f"localhost:{secured.port}", *options, "-t", "kcat"]
    environment = {"KRB5CCNAME": f"FILE:{secured.kdc.folder}/kcat.tickets"}
    run([*kcat, "-P"], stdin="one\ntwo\n", environment=environment)
    assert run([*kcat, "-C", "-e", "-o", "beginning"], environment=environment) == "one\ntwo\n"


@pytest.mark.parametrize("version", [V3, V4])
def test_java_over_several_sessions(
    secured: Secured, version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A producer that takes longer than several sessions loses no record and no connection."""
    settings = client_settings(secured.port, keytab_entry(secured.keytab, "ann"))
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in {**settings, "acks": "all"}.items()))
    command = available(lambda: java(version, "org.apache.kafka.tools.ProducerPerformance"))
    topic = f"java-{version}"
    options = ["--topic", topic, "--num-records", "800", "--record-size", "100", "--throughput", "100"]
    environment = {"JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={secured.kdc.krb5_conf}"}
    printed = run([*command, *options, "--producer.config", str(file)], environment=environment)
    assert "800 records sent" in printed
    assert "after the end of the session" not in caplog.text
