"""Starting where one must not, and stopping when told."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.broker.record_requests import batch, create_topic, fetch, produce, values
from tests.clients.broker_process import BrokerProcess
from tests.faults.producers import RawProducer, wait_for_load

pytestmark = pytest.mark.slow

WAIT_S = 60


@pytest.fixture
def first(tmp_path: Path) -> BrokerProcess:
    return BrokerProcess(tmp_path / "data")


def refusal(broker: BrokerProcess) -> str:
    """The one line with which a broker refuses to start."""
    broker.begin_start()
    try:
        assert broker.wait(WAIT_S) == 1
    finally:
        broker.kill()
    [line] = [line for line in broker.log_text().splitlines() if line.startswith("barnabas: ")]
    assert "Traceback" not in broker.log_text()
    return line


def check_serves(broker: BrokerProcess) -> None:
    with broker.client() as client:
        answer = produce(client, "topic", batch(b"value"))
        assert answer.error_code == 0
        found = fetch(client, "topic", answer.base_offset)
        assert values(found.records) == [b"value"]


def test_two_brokers_on_one_directory(first: BrokerProcess) -> None:
    second = BrokerProcess(first.directory)
    second.log_file = first.directory.with_name("second.log")
    with first:
        with first.client() as client:
            create_topic(client, "topic")
        line = refusal(second)
        assert "is in use: another broker holds" in line
        assert str(first.directory) in line
        check_serves(first)
        # Whoever comes too late leaves no trace: the first stops in order, and is found in order.
        first.restart()
        assert "Recovering" not in first.log_text()
        check_serves(first)


def test_two_brokers_that_share_a_second_directory(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    first = BrokerProcess(tmp_path / "first", {"log.dirs": f"{tmp_path / 'first'},{shared}"})
    second = BrokerProcess(tmp_path / "second", {"log.dirs": f"{tmp_path / 'second'},{shared}"})
    with first:
        with first.client() as client:
            create_topic(client, "topic")
        line = refusal(second)
        assert f"{shared} is in use: another broker holds" in line
        check_serves(first)


def test_a_broker_id_that_is_not_the_directorys(first: BrokerProcess) -> None:
    first.overrides["broker.id"] = "3"
    with first:
        assert "broker 3 of cluster" in first.log_text()
        assert first.stop() == 0
        first.overrides["broker.id"] = "4"
        line = refusal(first)
        assert "broker.id is 4" in line
        assert "belong to broker 3" in line
        first.overrides["broker.id"] = "3"
        first.start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_broker_stops_in_order_under_load(first: BrokerProcess, number: signal.Signals) -> None:
    with first:
        with first.client() as client:
            create_topic(client, "topic")
        producer = RawProducer(first, "load", "topic", 0, acks=1)
        producer.start()
        try:
            wait_for_load([producer], 100, WAIT_S)
            began_s = time.monotonic()
            assert first.stop(number) == 0
            took_s = time.monotonic() - began_s
        finally:
            producer.stop()
        assert took_s < WAIT_S
        text = first.log_text()
        assert text.rstrip().endswith("Stopped (barnabas.server)")
        assert "Traceback" not in text
        first.start()
        assert "Recovering" not in first.log_text()
        with first.client() as client:
            found = fetch(client, "topic", 0, max_bytes=100 << 20)
            assert found.high_watermark > max(producer.acknowledged.values())


def test_nohup_keeps_a_broker_running(first: BrokerProcess) -> None:
    first.prefix = ["nohup"]
    with first:
        os.kill(first.pid, signal.SIGHUP)
        with first.client() as client:
            create_topic(client, "topic")
        check_serves(first)
        assert first.stop() == 0


def test_a_broker_that_is_told_to_stop_while_it_starts(first: BrokerProcess) -> None:
    with first:
        first.kill()
        first.begin_start()
        # Its address is taken, and more is to be done before it is ready.
        first.wait_for_line("Listening on", WAIT_S)
        assert first.stop() == 0
        assert first.log_text().rstrip().endswith("Stopped (barnabas.server)")
        first.start()
        assert "Recovering" not in first.log_text()


def test_recovery_is_told_in_few_lines(first: BrokerProcess) -> None:
    with first:
        with first.client() as client:
            create_topic(client, "topic", 100)
        first.kill()
        first.start()
        lines = [line for line in first.log_text().splitlines() if "Recovering" in line]
        assert "100 of 100 logs" in lines[-1]
        # One at first, one a second, one at the end.
        assert len(lines) < 50
