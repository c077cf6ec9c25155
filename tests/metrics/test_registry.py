from __future__ import annotations

import pytest

from barnabas.metrics import registry
from barnabas.metrics.instruments import Histogram
from barnabas.metrics.registry import Registry


def test_the_text_that_prometheus_reads() -> None:
    metrics = Registry()
    requests = metrics.counter("requests_total", "Requests.", "request")
    requests.labels("Produce").value += 3
    requests.labels('a "quoted"\n\\name').value += 1
    metrics.gauge("lag_seconds", "Lag.", lambda: 0.25)
    metrics.gauge("size_bytes", "Size.", lambda: [({"topic": "a", "partition": "0"}, 7)])
    times = metrics.histogram("time_seconds", "Time.", bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 30):
        times.labels().observe(value)
    assert metrics.render() == (
        "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
        'requests_total{request="Produce"} 3\nrequests_total{request="a \\"quoted\\"\\n\\\\name"} 1\n'
        "# HELP lag_seconds Lag.\n# TYPE lag_seconds gauge\nlag_seconds 0.25\n"
        '# HELP size_bytes Size.\n# TYPE size_bytes gauge\nsize_bytes{topic="a",partition="0"} 7\n'
        "# HELP time_seconds Time.\n# TYPE time_seconds histogram\n"
        'time_seconds_bucket{le="0.1"} 2\ntime_seconds_bucket{le="1"} 3\ntime_seconds_bucket{le="+Inf"} 4\n'
        "time_seconds_sum 30.65\ntime_seconds_count 4\n"
    )


def test_quantiles_are_bounds_of_buckets() -> None:
    times = Histogram((1.0, 2.0, 4.0))
    assert times.quantile(0.5) == 0.0
    for value in (0.5, 1.5, 1.6, 3.0, 99.0):
        times.observe(value)
    assert times.quantile(0.5) == 2.0
    assert times.quantile(0.8) == 4.0
    assert times.quantile(1.0) == 4.0


def test_labels_from_outside_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_SERIES_A_FAMILY", 3)
    family = Registry().counter("bytes_total", "Bytes.", "topic")
    for number in range(10):
        family.labels(f"topic-{number}").value += 1
    lines = list(family.lines())
    assert len(lines) == 4
    assert 'bytes_total{topic="other"} 7' in lines
    family.remove("topic-0")
    assert len(list(family.lines())) == 3
