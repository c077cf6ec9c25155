"""Java's consumers in groups and its transactional producers, of both releases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.interop.programs import HERE, available, java_source, run
from tests.peers.kafka_peer import V3, V4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "200",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    with BrokerProcess(tmp_path_factory.mktemp("interop") / "data", settings) as running:
        yield running
        assert "Traceback" not in running.log_text(), running.log_text()
        assert running.stop() == 0


@pytest.mark.parametrize(("version", "protocol"), [(V3, "classic"), (V4, "classic"), (V4, "consumer")])
def test_groups(broker: BrokerProcess, version: str, protocol: str) -> None:
    command = available(lambda: java_source(version, HERE / "java" / "GroupsProbe.java"))
    printed = run([*command, broker.address, f"groups-{version}-{protocol}", protocol])
    assert printed.endswith("all steps hold\n")


@pytest.mark.parametrize("version", [V3, V4])
def test_transactions(broker: BrokerProcess, version: str) -> None:
    command = available(lambda: java_source(version, HERE / "java" / "TransactionsProbe.java"))
    printed = run([*command, broker.address, f"transactions-{version}"])
    assert printed.endswith("all steps hold\n")
