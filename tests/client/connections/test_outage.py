"""A client that reaches no broker says so: once, then each minute, and when it is over."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from typing import Any

import pytest

import barnabas
from barnabas.client.connections.outage import NAMED_MAX, REMIND_S, Outage
from barnabas.errors import KafkaError, NetworkException, SaslAuthenticationFailed
from barnabas.testing import Broker, free_port

WAIT_S = 60
OUTAGE = "barnabas.client.connections.outage"


class Told(logging.Handler):
    """The log lines of outages, waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put(f"{record.levelname} {record.getMessage()}")

    def next(self) -> str:
        return self.lines.get(timeout=WAIT_S)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    handler = Told()
    with caplog.at_level(logging.INFO, OUTAGE):
        logging.getLogger(OUTAGE).addHandler(handler)
        yield handler
        logging.getLogger(OUTAGE).removeHandler(handler)


def test_an_outage_is_told_once_a_minute_and_its_end_once(told: Told) -> None:
    outage = Outage()
    outage.end("a:1")
    failure = NetworkException("a:1 cannot be reached: refused")
    for now_s in (100.0, 101.0, 100.0 + REMIND_S - 1, 100.0 + REMIND_S, 101.0 + REMIND_S):
        outage.begin(["a:1", "b:2", "a:1"], failure, now_s)
    outage.end("b:2")
    outage.end("b:2")
    # The next one is told at once.
    outage.begin([f"a:{port}" for port in range(NAMED_MAX + 2)], SaslAuthenticationFailed("no"), 170.0)
    warning = (
        "WARNING No broker can be reached (tried a:1, b:2): a:1 cannot be reached: refused; trying again"
    )
    assert list(told.lines.queue) == [
        warning,
        warning,
        "INFO The broker at b:2 can be reached again",
        "WARNING No broker can be reached (tried a:0, a:1, a:2, a:3, a:4 and 2 more): no",
    ]


def produce(address: str, on_error: Callable[[KafkaError], object]) -> Any:
    producer = barnabas.Producer(bootstrap_servers=address, on_error=on_error, max_block_ms=1)
    with pytest.raises(KafkaError):
        producer.partitions_for("orders")
    return producer


def consume(address: str, on_error: Callable[[KafkaError], object]) -> Any:
    # It has connections of two kinds, which both fail.
    consumer = barnabas.Consumer(bootstrap_servers=address, group_id="g", on_error=on_error)
    consumer.subscribe(["orders"])
    assert consumer.poll(0) == []
    return consumer


@pytest.mark.parametrize("make", [produce, consume])
def test_a_client_that_reaches_no_broker_warns_and_tells_the_end(
    make: Callable[[str, Callable[[KafkaError], object]], Any], told: Told
) -> None:
    port = free_port()
    reported: queue.Queue[KafkaError] = queue.Queue()
    with make(f"127.0.0.1:{port}", reported.put):
        assert told.next().startswith(
            f"WARNING No broker can be reached (tried 127.0.0.1:{port}): 127.0.0.1:{port} cannot be reached:"
        )
        for _ in range(5):
            assert isinstance(reported.get(timeout=WAIT_S), NetworkException)
        assert told.lines.empty()
        with Broker(port=port):
            assert told.next() == f"INFO The broker at 127.0.0.1:{port} can be reached again"


def test_a_broker_that_is_away_is_no_outage_while_another_one_answers(told: Told) -> None:
    reported: queue.Queue[KafkaError] = queue.Queue()
    with Broker(topics=["orders"]) as broker:
        nobody = f"127.0.0.1:{free_port()}"
        for servers in (f"{nobody},{broker.bootstrap}", f"{broker.bootstrap},{nobody}"):
            with barnabas.Producer(bootstrap_servers=servers, on_error=reported.put) as producer:
                assert producer.partitions_for("orders") == 1
    assert told.lines.empty()
