"""`make demo`: a broker, one hour of events of a shop, three pipelines on Spark, and their results.

It needs Java 17, takes about a minute, and leaves nothing behind except build/demo.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from demo.stream import Event, expected_revenue, hour, products
from rich.console import Console
from rich.table import Table

from barnabas.errors import KafkaError
from barnabas.spark.pipeline.load import load_pipeline
from barnabas.spark.session import kept_quiet, require_spark, start_session
from barnabas.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: Final = Path(__file__).parent
TOPICS: Final = {"clicks": 3, "orders": 3, "products": 1, "revenue": 1, "orders-enriched": 1, "orders-bad": 1}
PIPELINES: Final = ("revenue", "archive", "enriched")
POLL_S: Final = 0.1
PIPELINE_TIMEOUT_S: Final = 600.0
WIDTH: Final = 100


@click.command()
@click.option("--svg", type=click.Path(path_type=Path), help="Also write the output as a picture.")
@click.option(
    "--folder", type=click.Path(path_type=Path), default=Path("build/demo"), help="For files and checkpoints."
)
def main(svg: Path | None, folder: Path) -> None:
    console = Console(width=WIDTH, record=svg is not None, highlight=False)
    try:
        require_spark()
        show(console, folder.absolute())
    except KafkaError as error:
        sys.exit(f"demo: {error}")
    if svg is not None:
        # The fonts that rich names are on other servers: a viewer of the picture uses a local font.
        picture = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="make demo"), flags=re.DOTALL)
        svg.write_text(picture.replace("Fira Code, ", ""), encoding="utf-8")


def show(console: Console, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Broker(topics=TOPICS) as broker:
        console.print(f"[bold]A broker[/bold] with {len(TOPICS)} topics, and an hour of a shop")
        events = [*products(), *hour()]
        began_s = time.monotonic()
        feed(broker, events)
        sent = Counter(event.topic for event in events)
        told = ", ".join(f"{count:,} {topic}" for topic, count in sent.items())
        console.print(f"  {told}: sent in {time.monotonic() - began_s:.1f} s\n")
        environment = {"BARNABAS_BOOTSTRAP": broker.bootstrap, "DEMO_FOLDER": str(folder)}
        with session() as spark:
            console.print("[bold]Three pipelines[/bold], each a TOML file in demo/")
            done = [run_one(console, spark, name, environment) for name in PIPELINES]
            console.print(table(done, "name", "does", "batches", "rows", "seconds"))
        show_results(console, broker, folder, events)


@contextmanager
def session() -> Iterator[SparkSession]:
    with open(os.devnull, "ab") as nowhere, kept_quiet(nowhere):
        settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
        spark = start_session("demo", master="local[2]", settings=settings)
    try:
        spark.sparkContext.setLogLevel("OFF")
        yield spark
    finally:
        spark.stop()


def feed(broker: Broker, events: list[Event]) -> None:
    with broker.producer(linger_ms=20) as producer:
        for topic in dict.fromkeys(event.topic for event in events):
            theirs = [event for event in events if event.topic == topic]
            producer.send_many(topic, [each.value for each in theirs], keys=[each.key for each in theirs])


def run_one(console: Console, spark: SparkSession, name: str, environment: dict[str, str]) -> dict[str, Any]:
    """Lets a pipeline read all existing records; the same as `barnabas pipeline run FILE`."""
    from barnabas.spark.pipeline.run import PipelineRun

    path = HERE / f"{name}.toml"
    running = PipelineRun(spark, load_pipeline(path, environment), HERE)
    began_s = time.monotonic()
    with console.status(f"{name} runs"):
        try:
            running.start()
            while running.is_active and time.monotonic() - began_s < PIPELINE_TIMEOUT_S:
                time.sleep(POLL_S)
            reports = running.reports()
            failure = running.error()
        finally:
            running.stop()
    if failure is not None:
        raise failure
    return {
        "name": name,
        "does": path.read_text().splitlines()[0].removeprefix("# ").rstrip("."),
        "batches": str(len(reports)),
        "rows": f"{sum(report.rows for report in reports):,}",
        "seconds": f"{time.monotonic() - began_s:.1f}",
    }


def show_results(console: Console, broker: Broker, folder: Path, events: list[Event]) -> None:
    import pyarrow.dataset

    revenue = [json.loads(record.value) for record in records(broker, "revenue")]
    by_window: dict[str, dict[str, Any]] = {}
    for row in sorted(revenue, key=lambda row: row["since"]):
        line = by_window.setdefault(row["since"][11:16], {"since": row["since"][11:16], "orders": 0})
        line["orders"] += row["orders"]
        line[row["category"]] = f"{row['euros']:,.0f}"
    console.print("\n[bold]revenue[/bold]: euros of each ten minutes, from topic [cyan]revenue[/cyan]")
    console.print(table(list(by_window.values()), "since", "orders", "books", "music", "tools"))
    found = Counter({(row["since"][11:16], row["category"]): round(row["euros"] * 100) for row in revenue})
    expected = expected_revenue(events)
    assert found == expected, (found - expected, expected - found)
    bad = records(broker, "orders-bad")
    console.print(
        f"  each order once: {sum(found.values()) / 100:,.2f} euros, as sent; {len(bad)} broken records in orders-bad,"
    )
    console.print(f"  such as {dict(bad[0].headers)['__barnabas.errors.message'].decode()[:80]}")

    clicks = pyarrow.dataset.dataset(folder / "clicks", partitioning="hive", exclude_invalid_files=True)
    rows = (
        clicks.to_table(columns=["device", "ms"])
        .group_by("device")
        .aggregate([("ms", "count"), ("ms", "mean")])
    )
    lines = [
        {
            "device": row["device"],
            "clicks": f"{row['ms_count']:,}",
            "ms on average": f"{row['ms_mean']:.1f}",
        }
        for row in sorted(rows.to_pylist(), key=lambda row: -row["ms_count"])
    ]
    assert clicks.count_rows() == sum(event.topic == "clicks" for event in events)
    console.print(f"\n[bold]archive[/bold]: {len(clicks.files)} Parquet files, read by pyarrow")
    console.print(table(lines, "device", "clicks", "ms on average"))

    enriched = [json.loads(record.value) for record in records(broker, "orders-enriched")]
    console.print("\n[bold]enriched[/bold]: orders with their product (a topic) and their customer (a file)")
    console.print(
        table(
            [
                {name: str(value) for name, value in row.items()}
                for row in sorted(enriched, key=lambda row: row["id"])[:4]
            ],
            *("id", "name", "city", "title", "quantity", "euros"),
        )
    )
    with broker.admin() as admin:
        groups = [
            {
                "group": group.group_id,
                "lag": str(
                    sum(
                        (admin.list_offsets([partition])[partition].offset or 0) - committed.offset
                        for partition, committed in admin.list_group_offsets(group.group_id).items()
                    )
                ),
            }
            for group in sorted(admin.list_groups(), key=lambda group: group.group_id)
        ]
    console.print("\n[bold]groups[/bold], as every Kafka tool sees them")
    console.print(table(groups, "group", "lag"))


def records(broker: Broker, topic: str) -> list[Any]:
    """All that there is, of transactions that were committed."""
    with broker.admin() as admin, broker.consumer(topic, isolation_level="read_committed") as consumer:
        ends = admin.list_offsets(consumer.assignment())
        found: list[Any] = []
        while any(consumer.position(partition) < (end.offset or 0) for partition, end in ends.items()):
            found += consumer.poll(timeout_ms=1000)
        return found


def table(rows: list[dict[str, Any]], *names: str) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2), header_style="bold cyan")
    for name in names:
        is_number = all(str(row.get(name, "")).replace(",", "").replace(".", "").isdigit() for row in rows)
        made.add_column(name, justify="right" if is_number else "left")
    for row in rows:
        made.add_row(*(str(row.get(name, "-")) for name in names))
    return made


if __name__ == "__main__":
    main()
