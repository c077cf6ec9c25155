"""Writes what the docs have of the console: its API, its Grafana dashboard, and screenshots of its pages.

python -m tools.console_docs api           docs/console-openapi.json and docs/grafana-dashboard.json
python -m tools.console_docs screenshots   docs/console-*.png, from a broker with invented data; needs Chromium
"""

from __future__ import annotations

import datetime
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from barnabas.spark.pipeline.journal import Journal
from barnabas.spark.pipeline.progress import BatchReport
from barnabas.testing import Broker, free_port
from tests.console.chromium import find_chromium

DOCS: Final = Path(__file__).parents[1] / "docs"
REQUEST_TIME: Final = "kafka_network_requestmetrics_totaltime_seconds_bucket"
# title, unit, and expressions with their legends
PANELS: Final[tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...]] = (
    ("Records in", "cps", (("sum(rate(kafka_server_brokertopicmetrics_messagesin_total[5m]))", "records"),)),
    (
        "Bytes",
        "Bps",
        (
            ("sum(rate(kafka_server_brokertopicmetrics_bytesin_total[5m]))", "in"),
            ("sum(rate(kafka_server_brokertopicmetrics_bytesout_total[5m]))", "out"),
        ),
    ),
    ("Lag of groups", "short", (("kafka_consumergroup_lag_sum", "{{consumergroup}}"),)),
    (
        "Request time, 99th percentile",
        "s",
        (
            (
                f"histogram_quantile(0.99, sum by (le, request) (rate({REQUEST_TIME}[5m])))",
                "{{request}}",
            ),
        ),
    ),
    (
        "Requests",
        "reqps",
        (("sum by (request) (rate(kafka_network_requestmetrics_requests_total[5m]))", "{{request}}"),),
    ),
    (
        "Errors",
        "cps",
        (("sum by (request) (rate(kafka_network_requestmetrics_errors_total[5m]))", "{{request}}"),),
    ),
    (
        "Partitions with problems",
        "short",
        (
            ("sum(kafka_controller_kafkacontroller_offlinepartitionscount)", "offline"),
            ("sum(kafka_server_replicamanager_underreplicatedpartitions)", "under-replicated"),
            ("sum(kafka_server_replicamanager_underminisrpartitioncount)", "under min ISR"),
            ("sum(kafka_log_logmanager_offlinelogdirectorycount)", "offline log directories"),
        ),
    ),
    ("Log size", "bytes", (("sum by (topic) (kafka_log_log_size)", "{{topic}}"),)),
    ("Idle share of the event loop", "percentunit", (("barnabas_eventloop_idle_ratio", "{{instance}}"),)),
    (
        "Delay of the event loop, 99th percentile",
        "s",
        (
            (
                "histogram_quantile(0.99, sum by (le, instance) (rate(barnabas_eventloop_lag_seconds_bucket[5m])))",
                "{{instance}}",
            ),
        ),
    ),
    ("Processor", "short", (("rate(process_cpu_seconds_total[5m])", "{{instance}}"),)),
    ("Memory", "bytes", (("process_resident_memory_bytes", "{{instance}}"),)),
    ("Connections", "short", (("kafka_server_socketservermetrics_connection_count", "{{instance}}"),)),
    ("Groups", "short", (("sum(kafka_coordinator_group_groupmetadatamanager_numgroups)", "groups"),)),
)


def dashboard() -> dict[str, Any]:
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"h": 8, "w": 12, "x": number % 2 * 12, "y": number // 2 * 8},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + index), "expr": expression, "legendFormat": legend}
                for index, (expression, legend) in enumerate(targets)
            ],
        }
        for number, (title, unit, targets) in enumerate(PANELS)
    ]
    return {
        "title": "Barnabas",
        "uid": "barnabas",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }


def write_api() -> None:
    from barnabas.console.api.openapi import document

    for name, content in (("console-openapi.json", document()), ("grafana-dashboard.json", dashboard())):
        (DOCS / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def fill(broker: Broker) -> None:
    """Three topics, two groups, and an hour of invented orders."""
    chance = random.Random(1)
    now_ms = time.time_ns() // 1_000_000
    broker.create_topics({"orders": 3, "payments": 6, "customers": 1})
    with broker.producer() as producer:
        for number in range(3_000):
            at_ms = now_ms - (3_000 - number) * 1_200
            order = {
                "id": number,
                "customer": {"name": chance.choice(["ann", "bob", "eve", "kim"])},
                "total": round(chance.random() * 100, 2),
            }
            trace = f"{chance.getrandbits(48):012x}".encode()
            producer.send(
                "orders",
                json.dumps(order).encode(),
                key=f"order-{number}".encode(),
                timestamp_ms=at_ms,
                headers={"trace": trace},
            )
            if number % 3:
                producer.send("payments", json.dumps({"order": number}).encode(), timestamp_ms=at_ms)
    for group, count in (("billing", 2_000), ("shipping", 500)):
        with broker.consumer(group_id=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            read = 0
            while read < count:
                read += len(consumer.poll(1000))
            consumer.commit()


PIPELINE = """
name = "revenue"
trigger = "10s"
checkpoint = "{folder}/checkpoint"
kafka = {{ "bootstrap.servers" = "{bootstrap}" }}
dead_letters = {{ topic = "orders-bad" }}

[sources.orders]
type = "topic"
topics = "orders"
format = {{ kind = "json", schema = "id BIGINT, total DOUBLE, customer STRUCT<name: STRING>" }}

[sources.customers]
type = "database"
url = "postgresql://shop:secret@db/shop"
table = "customers"
as_table = true

[[transforms]]
name = "joined"
sql = "SELECT orders.*, customers.country FROM orders JOIN customers ON customers.name = orders.customer.name"

[[transforms]]
name = "revenue"
sql = "SELECT country, sum(total) AS euros FROM joined GROUP BY country"

[sink]
type = "topic"
topic = "revenue"
format = {{ kind = "json" }}
"""


def write_pipeline(broker: Broker, folder: Path) -> tuple[Path, Journal]:
    """The file of a pipeline, and what it would write about its batches."""
    chance = random.Random(2)
    broker.create_topics({"revenue": 3, "orders-bad": 1})
    file = folder / "revenue.toml"
    file.write_text(PIPELINE.format(folder=folder, bootstrap=broker.bootstrap))
    journal = Journal(str(folder / "checkpoint"))
    for number in range(60):
        at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=10 * (60 - number))
        rows, batch_ms = chance.randrange(9_000, 12_000), chance.randrange(800, 1_300)
        journal.note(
            BatchReport(
                pipeline="revenue",
                query="revenue",
                batch_id=number,
                timestamp=at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                rows=rows,
                batch_ms=batch_ms,
                rows_per_second=round(rows * 1000 / batch_ms, 1),
                lag=chance.randrange(0, 4_000),
                state_rows=40 + number,
                watermark=None,
            )
        )
    return file, journal


def take_screenshots() -> None:
    from playwright.sync_api import sync_playwright

    chromium = find_chromium()
    if chromium is None:
        sys.exit("Chromium is missing (Debian: apt-get install chromium)")
    port = free_port()
    with Broker() as broker, tempfile.TemporaryDirectory() as folder:
        fill(broker)
        file, _ = write_pipeline(broker, Path(folder))
        command = [sys.executable, "-m", "barnabas", "console", "-b", broker.bootstrap, "--port", str(port)]
        command += ["--pipeline", str(file)]
        console = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            with sync_playwright() as driver:
                browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                try:
                    _photograph(browser, f"http://127.0.0.1:{port}/", broker)
                finally:
                    browser.close()
        finally:
            console.terminate()
            console.wait(60)


def _photograph(browser: Any, address: str, broker: Broker) -> None:
    for name, width, scheme, path, text in (
        (
            "messages",
            1280,
            "light",
            "#/topics/orders/messages?q=%24.customer.name%3Dann+%24.total%3E90",
            "All records",
        ),
        ("overview", 1280, "dark", "#/", "last 1 min"),
        ("group", 1280, "light", "#/groups/billing", "Partitions that the group reads"),
        ("pipeline", 1280, "light", "#/pipelines/revenue", "Partitions that the pipeline reads"),
        ("narrow", 400, "light", "#/topics/orders/messages?q=order-2718", "All records"),
    ):
        context = browser.new_context(viewport={"width": width, "height": 760}, color_scheme=scheme)
        page = context.new_page()
        deadline_s = time.monotonic() + 60
        while True:
            try:
                page.goto(address + path)
                break
            except Exception:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.2)
        if name == "messages":
            # The first search starts processes; what users see is the time of the next one.
            page.get_by_text(text).first.wait_for(timeout=60_000)
            page.reload()
        # Some traffic, so that the plots have something to show.
        with broker.producer() as producer:
            producer.send_many("payments", [b'{"order": 1}'] * 2_000).result(60)
        page.get_by_text(text).first.wait_for(timeout=60_000)
        if name in ("messages", "narrow"):
            page.get_by_role("button", name="Details of").first.click()
        page.screenshot(path=DOCS / f"console-{name}.png")
        context.close()


if __name__ == "__main__":
    {"api": write_api, "screenshots": take_screenshots}[sys.argv[1]]()
