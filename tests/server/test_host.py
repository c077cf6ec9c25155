"""Several brokers of one host as users run them: `barnabas start --brokers N`."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.record import ConsumerRecord
from barnabas.errors import KafkaError
from barnabas.testing import Broker, BrokerFailed
from tests.waiting import Deadline

pytestmark = pytest.mark.slow

BROKERS: Final = 3
WAIT_S: Final = 90.0
COMMAND_TIMEOUT_S: Final = 180


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def produce(broker: Broker, topic: str, count: int) -> None:
    with broker.producer() as producer:
        for index in range(count):
            producer.send(topic, b"%d" % index, partition=index % producer.partitions_for(topic))
        producer.flush()


def consume(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    deadline = Deadline(WAIT_S)
    while len(found) < count:
        found += consumer.poll()
        deadline.check(f"{len(found)} of {count} records")
    return found


def values(broker: Broker, topic: str, count: int) -> set[int]:
    with broker.consumer(topic) as consumer:
        return {int(record.value or b"-1") for record in consume(consumer, count)}


def leaders(broker: Broker, topic: str) -> list[int | None]:
    with broker.admin() as admin:
        return [each.leader for each in admin.describe_topics(topic)[topic].partitions]


@pytest.fixture(scope="module")
def host() -> Iterator[Broker]:
    with Broker(
        brokers=BROKERS, topics={"spread": 6}, barnabas_metrics_port=0, zookeeper_session_timeout_ms=2_000
    ) as running:
        yield running
        running.stop()
        assert "Traceback" not in running.log()


def test_clients_of_any_broker_reach_all_partitions(host: Broker) -> None:
    assert sorted(filter(None, leaders(host, "spread"))) == [1, 1, 2, 2]
    produce(host, "spread", 60)
    assert values(host, "spread", 60) == set(range(60))
    with host.admin() as admin:
        nodes = {node.id: node.port for node in admin.describe_cluster().nodes}
    assert nodes == {index: host.port + index for index in range(BROKERS)}


def test_groups_and_transactions_have_their_coordinators_on_any_broker(host: Broker) -> None:
    host.create_topics({"in": 3, "out": 3})
    produce(host, "in", 30)
    for number in range(4):
        group = f"group-{number}"
        with host.producer(transactional_id=f"id-{number}") as producer:
            producer.init_transactions()
            with host.consumer("in", group_id=group, enable_auto_commit=False) as consumer:
                records = consume(consumer, 30)
                producer.begin_transaction()
                for record in records:
                    producer.send("out", record.value)
                positions = {(record.topic, record.partition): record.offset + 1 for record in records}
                producer.send_offsets_to_transaction(positions, consumer.group_metadata())
                producer.commit_transaction()
        with host.admin() as admin:
            committed = admin.list_group_offsets(group)
        assert sum(each.offset for each in committed.values()) == 30
    with host.consumer("out", isolation_level="read_committed") as consumer:
        assert len(consume(consumer, 120)) == 120


def test_a_broker_that_is_stopped_loses_its_session_and_comes_back(host: Broker) -> None:
    paused = host.pids[1]
    os.kill(paused, signal.SIGSTOP)
    try:
        deadline = Deadline(WAIT_S)
        while "has been silent for" not in host.log():
            deadline.check("the store did not notice it")
            time.sleep(0.05)
        while 1 in leaders_of_others(host):
            deadline.check("it still leads partitions")
            time.sleep(0.05)
    finally:
        os.kill(paused, signal.SIGCONT)
    deadline = Deadline(WAIT_S)
    while sorted(filter(None, leaders_of_others(host))) != [1, 1, 2, 2]:
        deadline.check("it does not lead its partitions again")
        time.sleep(0.05)
    assert host.pids[1] == paused
    produce(host, "spread", 6)


def leaders_of_others(host: Broker) -> list[int | None]:
    try:
        with Admin(
            bootstrap_servers=f"127.0.0.1:{host.port},127.0.0.1:{host.port + 2}", request_timeout_ms=3_000
        ) as admin:
            return [each.leader for each in admin.describe_topics("spread")["spread"].partitions]
    except KafkaError:
        return [1]


def test_a_broker_that_ends_is_started_again_with_its_ports(host: Broker) -> None:
    before = host.pids[2]
    os.kill(before, signal.SIGTERM)
    deadline = Deadline(WAIT_S)
    while host.pids.get(2) in (before, None):
        deadline.check("it was not started again")
        time.sleep(0.02)
    assert "Broker 2 ended with exit code 0. It is started again" in host.log()
    lines = [line for line in host.log().splitlines() if "[broker 2] Metrics at" in line]
    assert len(lines) == 2
    assert lines[0].partition("Metrics")[2] == lines[1].partition("Metrics")[2]
    produce(host, "spread", 6)


def test_the_system_chooses_the_ports_of_several_brokers() -> None:
    with Broker(brokers=2, port=0, topics={"kept": 4}) as broker:
        assert len(set(broker.ports)) == 2
        before = broker.ports
        produce(broker, "kept", 20)
        killed = broker.pids[1]
        os.kill(killed, signal.SIGKILL)
        deadline = Deadline(WAIT_S)
        while broker.pids.get(1) in (killed, None):
            deadline.check("it was not started again")
            time.sleep(0.02)
        assert broker.ports == before
        assert values(broker, "kept", 20) == set(range(20))
        # Every broker knows the topics that are new, and not the old ones.
        broker.reset()
        for port in broker.ports:
            with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
                assert [topic.name for topic in admin.list_topics()] == ["kept"]
        produce(broker, "kept", 4)
        assert values(broker, "kept", 4) == set(range(4))


def test_nothing_outlives_the_supervisor(tmp_path: Path) -> None:
    with Broker(brokers=2, directory=tmp_path / "data", topics={"kept": 2}) as broker:
        produce(broker, "kept", 10)
        processes = [*broker.pids.values(), broker.store_pid]
        handles = [os.pidfd_open(each) for each in processes]
        broker.kill_supervisor()
        for handle in handles:
            assert ended(handle), "a process lives on"
            os.close(handle)
        broker.start()
        assert values(broker, "kept", 10) == set(range(10))


def test_crashes_raise_leader_epochs_and_a_lost_store_loses_no_records(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(brokers=2, directory=data, topics={"kept": 4}) as host:
        produce(host, "kept", 40)
        before = epochs(host, "kept")
        # As a power failure would do it: the logs of all brokers may have lost their ends.
        host.kill()
        host.start()
        after = epochs(host, "kept")
        assert all(late > early for early, late in zip(before, after, strict=True)), (before, after)
        led_by = leaders(host, "kept")
        host.stop()
        for name in ("barnabas-store.journal", "barnabas-store.copy"):
            (data / name).unlink()
        host.start()
        assert "Topic kept was found on the disk" in host.log()
        assert leaders(host, "kept") == led_by
        assert all(late > early for early, late in zip(after, epochs(host, "kept"), strict=True))
        assert values(host, "kept", 40) == set(range(40))
        assert "barnabas.deletion.hold" in command(
            "configs", "describe", "topic", "kept", "-b", host.bootstrap
        )
        produce(host, "kept", 4)


def epochs(broker: Broker, topic: str) -> list[int]:
    with broker.admin() as admin:
        partitions = admin.describe_topics(topic)[topic].partitions
    return [-1 if each.leader_epoch is None else each.leader_epoch for each in partitions]


def ended(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(WAIT_S * 1_000))


def test_the_directory_of_one_broker_is_that_of_the_first_of_several(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(directory=data, topics={"one": 2}) as single:
        produce(single, "one", 20)
        single.stop()
        assert "broker 1001 of cluster" in single.log()
    with Broker(directory=data, brokers=3) as host:
        assert sorted(host.pids) == [1001, 1002, 1003]
        assert leaders(host, "one") == [1001, 1001]
        assert values(host, "one", 20) == set(range(20))
        host.create_topics({"more": 6})
        produce(host, "more", 60)
        assert sorted(set(leaders(host, "more")), key=str) == [1001, 1002, 1003]
        host.stop()
    check_tools(data)
    refusal = r"have replicas on {}.*Start with --brokers 3.*reassign plan -b 127\.0\.0\.1:\d+ --all"
    for brokers, gone in ((1, "brokers 1002,1003"), (2, "broker 1003")):
        with pytest.raises(BrokerFailed, match=refusal.format(gone)):
            Broker(directory=data, brokers=brokers).start()
    with Broker(directory=data, brokers=3) as host:
        plan = str(tmp_path / "plan.json")
        everything = ("--all", "--internal", "--without", "1002,1003", "-b", host.bootstrap)
        command("reassign", "plan", *everything, "-o", plan)
        command("reassign", "run", plan, "--yes", "-b", host.bootstrap)
        assert set(leaders(host, "more")) == {1001}
        host.stop()
    with Broker(directory=data) as single:
        assert "broker 1001 of cluster" in single.log()
        assert values(single, "one", 20) == set(range(20))
        assert values(single, "more", 60) == set(range(60))


def check_tools(data: Path) -> None:
    """The directory stands for those of all brokers."""
    lines = command("log", "records", str(data), "--topic", "more").splitlines()
    assert {int(bytes.fromhex(json.loads(line)["value"])) for line in lines} == set(range(60))
    described = json.loads(command("log", "describe", str(data), "--json"))
    assert sorted(described["topics"]["more"]["partitions"]) == [str(index) for index in range(6)]
    assert command("log", "verify", str(data)) == ""
    from barnabas.log.reader.partition_files import find_partitions

    found = find_partitions([str(data)], lambda at: at.topic == "more")
    assert [each.partition.partition for each in found] == list(range(6))


def test_a_host_that_cannot_start_says_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(BrokerFailed, match="cannot listen on"), Broker() as other:
        Broker(directory=data, brokers=2, port=other.port - 1).start()
    assert not data.exists()
    with Broker(directory=data, brokers=2), pytest.raises(BrokerFailed, match=r"barnabas-host\.lock"):
        Broker(directory=data, brokers=2).start()
    (data / "barnabas-brokers" / "1" / "meta.properties").write_text(
        "version=0\nbroker.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    )
    with pytest.raises(BrokerFailed, match=r"barnabas: broker 1: meta\.properties is of cluster"):
        Broker(directory=data, brokers=2).start()


def test_brokers_with_passwords_reach_each_other() -> None:
    """The controller logs in to a broker that does not answer clients yet."""
    with Broker(brokers=2, security="sasl_ssl", users={"ann": "secret"}, topics={"orders": 4}) as secured:
        produce(secured, "orders", 40)
        assert values(secured, "orders", 40) == set(range(40))
