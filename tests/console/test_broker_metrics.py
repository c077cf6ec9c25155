"""Bytes and latencies from the metrics of a real broker."""

from __future__ import annotations

import pytest

from barnabas.console.broker_metrics import BrokerMetrics, quantile
from barnabas.errors import InvalidConfig
from barnabas.testing import Broker, free_port

SERIES = {
    "bytes_in_per_second",
    "bytes_out_per_second",
    "requests_per_second",
    "produce_p99_ms",
    "fetch_p99_ms",
}


def test_rates_and_latencies_of_a_broker() -> None:
    port = free_port()
    with Broker(topics={"a": 1}, barnabas_metrics_port=port) as broker:
        metrics = BrokerMetrics([f"http://127.0.0.1:{port}/metrics"])
        assert metrics.sample(0) == {}
        with broker.producer() as producer:
            producer.send("a", bytes(10_000)).result(60)
        with broker.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([("a", 0)])
            while not consumer.poll(1000):
                pass
        found = metrics.sample(10_000)
        assert set(found) == SERIES
        assert 1_000 <= found["bytes_in_per_second"] < 1_100
        assert found["bytes_out_per_second"] >= 1_000
        assert found["produce_p99_ms"] > 0
        assert not metrics.problems
    # Without the broker there is no value, and a reason.
    assert metrics.sample(20_000) == {}
    assert f"127.0.0.1:{port}" in metrics.problems[0]


def test_a_quantile() -> None:
    inf = float("inf")
    assert quantile({}, 0.99) is None
    assert quantile({1.0: 0, inf: 0}, 0.99) is None
    assert quantile({1.0: 50, 2.0: 100, inf: 100}, 0.5) == 1.0
    assert quantile({1.0: 50, 2.0: 100, inf: 100}, 0.75) == pytest.approx(1.5)
    assert quantile({1.0: 0, inf: 10}, 0.99) == 1.0


def test_an_address_that_is_none() -> None:
    with pytest.raises(InvalidConfig):
        BrokerMetrics(["file:///etc/passwd"])
