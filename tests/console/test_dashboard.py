"""The Grafana dashboard names only metrics that a broker has."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from barnabas.testing import Broker, free_port
from tools.console_docs import dashboard

FILE = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
FUNCTIONS = {"sum", "by", "rate", "histogram_quantile", "le", "request", "topic", "instance"}


def test_the_file_is_what_the_tool_writes() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == dashboard(), "write it again: make console-docs"


@pytest.mark.slow
def test_every_metric_is_served() -> None:
    expressions = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    wanted = {
        name
        for expression in expressions
        for name in re.findall(r"[a-z_]{2,}", re.sub(r"\[\w+\]", "", expression))
        if name not in FUNCTIONS
    }
    assert len(wanted) >= len(expressions) - 1
    port = free_port()
    with Broker(topics={"orders": 1}, barnabas_metrics_port=port) as broker:
        with broker.producer() as producer:
            producer.send("orders", b"value")
        with broker.consumer(group_id="group", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            while not consumer.poll(1000):
                pass
            consumer.commit()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    served = set(re.findall(r"^([a-z_]+)[ {]", text, re.MULTILINE))
    assert wanted <= served
