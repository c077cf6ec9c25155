"""The lines that `barnabas start` writes, for people and for programs."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.broker_logs import JsonFormatter, LineFormatter, log_to_stderr
from barnabas.protocol.messages.delete_topics_request import DeleteTopicsRequest
from tests.broker.config_requests import BROKER_LOGGER, SET, incremental
from tests.broker.group_requests import join_alone, leave, wait_for_coordinator
from tests.broker.record_requests import create_topic
from tests.clients.broker_process import BrokerProcess
from tests.waiting import WAIT_S, wait_until


def record(message: str, *values: object, level: int = logging.INFO, **fields: object) -> logging.LogRecord:
    return logging.getLogger("barnabas.here").makeRecord(
        "barnabas.here", level, "file.py", 1, message, values, None, extra=fields
    )


@pytest.fixture
def loggers() -> Iterator[None]:
    """What the test does to them is undone."""
    known = [logging.root, logging.getLogger("barnabas.log"), logging.getLogger("asyncio")]
    levels = [each.level for each in known]
    handlers = list(logging.root.handlers)
    yield
    for logger, level in zip(known, levels, strict=True):
        logger.setLevel(level)
    logging.root.handlers[:] = handlers


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (5, "TRACE"),
        (logging.DEBUG, "DEBUG"),
        (logging.INFO, "INFO"),
        (logging.WARNING, "WARN"),
        (logging.ERROR, "ERROR"),
        (logging.CRITICAL, "FATAL"),
    ],
)
def test_a_line_has_date_level_message_and_logger_as_in_kafka(level: int, name: str) -> None:
    line = LineFormatter().format(record("%d topics", 3, level=level))
    expected = rf"\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}}\] {name} 3 topics \(barnabas\.here\)"
    assert re.fullmatch(expected, line)


def test_what_a_client_has_sent_cannot_begin_a_line() -> None:
    line = LineFormatter().format(record("client %s", "a\n[2026-01-01 00:00:00,000] INFO fake\r\x1b\u2028"))
    assert len(line.splitlines()) == 1
    assert "client a\\n[2026" in line
    assert "\x1b" not in line


def test_an_object_a_line_with_the_fields_of_the_event() -> None:
    event = record("Created topic %s", "a\nb", level=logging.WARNING, topic="a\nb", partitions=3)
    line = JsonFormatter().format(event)
    assert len(line.splitlines()) == 1
    found = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("ts"))
    assert found == {
        "level": "WARN",
        "logger": "barnabas.here",
        "message": "Created topic a\nb",
        "topic": "a\nb",
        "partitions": 3,
    }


def test_exceptions_are_told_with_their_trace(loggers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.StringIO()
    monkeypatch.setattr(sys, "stderr", output)
    log_to_stderr(form="json", level="ERROR", verbose=0)
    try:
        raise ValueError("what went wrong")
    except ValueError:
        logging.getLogger("barnabas.here").exception("it failed")
    logging.getLogger("barnabas.here").warning("this is below the level")
    [line] = output.getvalue().splitlines()
    assert json.loads(line)["exception"].endswith("ValueError: what went wrong")


@pytest.mark.parametrize(
    ("level", "verbose", "root", "of_logs"),
    [
        ("INFO", 0, logging.INFO, logging.WARNING),
        ("INFO", 1, logging.INFO, logging.INFO),
        ("INFO", 2, logging.DEBUG, logging.DEBUG),
        ("ERROR", 0, logging.ERROR, logging.ERROR),
        ("DEBUG", 0, logging.DEBUG, logging.DEBUG),
    ],
)
def test_levels(loggers: None, level: str, verbose: int, root: int, of_logs: int) -> None:
    logging.getLogger("barnabas.log").setLevel(logging.NOTSET)
    log_to_stderr(form="text", level=level, verbose=verbose)
    assert logging.getLogger("barnabas.broker").getEffectiveLevel() == root
    assert logging.getLogger("barnabas.log.segment.segment").getEffectiveLevel() == of_logs


class JsonBroker(BrokerProcess):
    """A broker that writes everything it has to say, as JSON, and serves metrics."""

    def command(self) -> list[str]:
        return [*super().command(), "--log-format", "json", "--log-level", "debug", "--metrics-port", "0"]

    def event(self, text: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.wait_for_line(text, WAIT_S))
        return found


def metric(url: str, name: str) -> float:
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        text = answer.read().decode()
    [line] = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


@pytest.mark.slow
def test_a_broker_logs_connections_topics_and_rebalances(tmp_path: Path) -> None:
    with JsonBroker(tmp_path / "data", {"group.initial.rebalance.delay.ms": "0"}) as broker:
        assert broker.event("Listening on")["level"] == "INFO"
        url = broker.event("Metrics at ")["message"].removeprefix("Metrics at ")
        assert metric(url, "process_resident_memory_bytes") > 0
        # A broker that is asked at once has not been idle yet.
        wait_until(lambda: metric(url, "barnabas_eventloop_idle_ratio") > 0)
        with broker.client() as client:
            create_topic(client, "orders", 3)
            client.ask("DeleteTopics", 5, DeleteTopicsRequest(topic_names=["orders"]))
            wait_for_coordinator(client, "group")
            joined = join_alone(client, "group")
            leave(client, "group", joined.member_id)
        created = broker.event("Created topic orders")
        assert (created["topic"], created["partitions"]) == ("orders", 3)
        assert broker.event("Deleted topic orders")["topic_id"] == created["topic_id"]
        assert broker.event("Adding new member")["group"] == "group"
        assert broker.event("Stabilized group group")["members"] == 1
        assert broker.event("explicit LeaveGroup request")["group"] == "group"
        accepted = broker.event("accepted by listener PLAINTEXT")
        assert accepted["level"] == "DEBUG"
        assert broker.event("closed: by the client")["level"] == "DEBUG"
        assert broker.stop() == 0
        assert all(json.loads(line) for line in broker.log_text().splitlines())


@pytest.mark.slow
def test_levels_of_a_running_broker_are_those_that_clients_set(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, broker.client() as client:
        assert "accepted" not in broker.log_text()
        assert incremental(client, BROKER_LOGGER, "1001", ("root", SET, "DEBUG")) == (0, None)
        with broker.client() as another:
            create_topic(another, "topic")
        broker.wait_for_line("DEBUG Connection from", WAIT_S)
        assert incremental(client, BROKER_LOGGER, "1001", ("root", SET, "ERROR")) == (0, None)
        create_topic(client, "unheard")
        assert broker.stop() == 0
        assert "unheard" not in broker.log_text()
