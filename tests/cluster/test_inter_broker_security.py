"""Brokers that speak to each other with TLS and SASL, one of them Apache Kafka 3.9.1, and with Kerberos."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import NewTopic
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.testing import free_port
from tests.cluster.clusters import ClusterBroker
from tests.peers.kafka_cluster import KafkaBroker
from tests.peers.kafka_peer import V3, PeerUnavailable, jars
from tests.peers.zookeeper_peer import ZooKeeperServer
from tests.security.certificates import tls_settings_of, write_certificates
from tests.security.kdc import running_kdc, sasl_settings
from tests.waiting import WAIT_S, Deadline, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.peer]

OURS, KAFKA = 1, 2
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{PLAIN_MODULE} required username="broker" password="between us" user_broker="between us";'
SETTINGS = {
    "inter.broker.listener.name": "BROKERS",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL",
    "listener.name.brokers.ssl.client.auth": "required",
    "listener.name.brokers.sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": JAAS,
    # Each broker finds the coordinator of a group by its own count.
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "2",
    "zookeeper.session.timeout.ms": "40000",
}


def settings_of(folder: Path, port: int) -> dict[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{port},BROKERS://127.0.0.1:{free_port()}"
    return {**SETTINGS, **tls_settings_of(folder, "listener.name.brokers."), "listeners": listeners}


def test_replication_in_both_directions(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    try:
        jars(V3)
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    write_certificates(tmp_path)
    kafka = KafkaBroker(KAFKA, tmp_path / "kafka", zookeeper.address)
    with (tmp_path / "kafka" / "server.properties").open("a") as file:
        file.writelines(f"{name}={value}\n" for name, value in settings_of(tmp_path, kafka.port).items())
    ours = ClusterBroker(
        OURS, tmp_path / "ours", {"broker.id": str(OURS), "zookeeper.connect": zookeeper.address}
    )
    ours.overrides.update(settings_of(tmp_path, ours.port))
    try:
        kafka.start()
        ours.start()
        kafka.wait_until_ready()
        wait_until(lambda: len(ours.metadata([]).brokers) == 2, "both brokers in the metadata")
        settings = {"bootstrap.servers": ours.address}
        with Admin(settings) as admin:
            admin.create_topics([NewTopic(name="t", assignment={0: [OURS, KAFKA], 1: [KAFKA, OURS]})])
        values = [b"%d" % number for number in range(100)]
        with Producer({**settings, "acks": "all"}) as producer:
            for number, value in enumerate(values):
                producer.send("t", value, partition=number % 2)
        with Consumer({**settings, "auto.offset.reset": "earliest", "group.id": "g"}) as consumer:
            consumer.subscribe(["t"])
            found: list[bytes] = []
            deadline = Deadline(WAIT_S)
            while len(found) < len(values):
                found += [each.value for each in consumer.poll(500)]
                deadline.check("not all records came")
        assert sorted(found) == sorted(values)
    except BaseException:
        print(ours.log_text()[-8000:])
        raise
    finally:
        ours.kill()
        kafka.kill()


def test_replication_with_kerberos(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with running_kdc(tmp_path) as kdc:
        settings = {
            **{
                name: SETTINGS[name]
                for name in ("inter.broker.listener.name", "zookeeper.session.timeout.ms")
            },
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            **sasl_settings("brokers", kdc.add("kafka/localhost")),
            "zookeeper.connect": f"{zookeeper.address}/kerberos",
        }
        brokers = [ClusterBroker(each, tmp_path / str(each), {"broker.id": str(each)}) for each in (1, 2)]
        for broker in brokers:
            listeners = f"PLAINTEXT://127.0.0.1:{broker.port},BROKERS://localhost:{free_port()}"
            broker.overrides.update({**settings, "listeners": listeners})
        try:
            for broker in brokers:
                broker.start()
            wait_until(lambda: len(brokers[0].metadata([]).brokers) == 2, "both brokers in the metadata")
            client = {"bootstrap.servers": brokers[0].address}
            with Admin(client) as admin:
                admin.create_topics([NewTopic(name="t", assignment={0: [1, 2], 1: [2, 1]})])
            with Producer({**client, "acks": "all"}) as producer:
                for partition in (0, 1):
                    assert producer.send("t", b"x", partition=partition).result(WAIT_S).offset == 0
            assert brokers[0].out_of_sync() == []
        except BaseException:
            for broker in brokers:
                print(broker.log_text()[-8_000:])
            raise
        finally:
            for broker in brokers:
                broker.kill()
