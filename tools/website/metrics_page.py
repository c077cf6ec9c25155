"""The reference page of metrics: what brokers serve to Prometheus, by their own descriptions.

Two brokers of one host are asked, because only a broker with others has metrics of replication.
"""

from __future__ import annotations

import re
import urllib.request
from typing import Final

from barnabas.testing import Broker, free_port

METRICS: Final = "reference/metrics.md"
TIMEOUT_S: Final = 30
_FAMILY: Final = re.compile(r"^# HELP (\w+) (.*)\n# TYPE \1 (\w+)\n((?:(?!#).*\n)*)", re.MULTILINE)


def pages() -> dict[str, str]:
    """Markdown by the path of the page in the site."""
    families: dict[str, str] = {}
    for name, text, kind, samples in sorted(_FAMILY.findall(_served())):
        labels = sorted(set(re.findall(r'[{,](\w+)="', samples)) - {"le"})
        shown = ", ".join(f"`{label}`" for label in labels)
        families[name] = (
            f'| <span id="{name}">`{name}`</span> | {kind} | {shown} | {text.replace("|", "&#124;")} |'
        )
    assert len(families) > 50, "the brokers served too few metrics"
    rows = "\n".join(families.values())
    return {
        METRICS: "# Metrics\n\nA broker with [`barnabas.metrics.port`](broker-settings.md#barnabas.metrics.port) serves"
        " these metrics to Prometheus. [Monitor](../howto/monitor.md) shows where to start.\n\n"
        f"| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}\n"
    }


def _served() -> str:
    port = free_port()
    with Broker(brokers=2, topics=["orders"], barnabas_metrics_port=port) as broker:
        with broker.producer() as producer:
            producer.send("orders", b"1").result(TIMEOUT_S)
        with broker.consumer("orders", group_id="billing") as consumer:
            next(consumer)
            consumer.commit()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as response:
            text: str = response.read().decode()
    return text
