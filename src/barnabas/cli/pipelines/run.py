"""`barnabas pipeline run`: a pipeline in the foreground, with its progress."""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import click

from barnabas.cli.pipelines.session import (
    file_argument,
    json_option,
    session,
    session_options,
    told_in_a_line,
)
from barnabas.cli.shared.output import duration_text, note, show_json_line

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession
    from rich.console import Console

    from barnabas.spark.pipeline.journal import Journal
    from barnabas.spark.pipeline.model import Pipeline
    from barnabas.spark.pipeline.progress import BatchReport
    from barnabas.spark.pipeline.run import PipelineRun

RETRIES: Final = 5
METRICS_HOST: Final = "127.0.0.1"
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Show = Callable[[dict[str, Any]], None]


@click.command(
    epilog="""\b
Examples:
  barnabas pipeline run orders.toml
  barnabas pipeline run orders.toml --once --conf spark.sql.shuffle.partitions=4
  barnabas pipeline run orders.toml --master spark://host:7077 --workers workers.tar.gz --metrics-port 9404"""
)
@file_argument
@click.option("--once", is_flag=True, help="Read the existing data and exit.")
@click.option("--checkpoint", metavar="PATH", help="Another checkpoint than the file's.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve metrics for Prometheus on this port, at /metrics; 0 chooses a free port.",
)
@click.option(
    "--metrics-host",
    default=METRICS_HOST,
    show_default=True,
    metavar="HOST",
    help="The address for metrics. 0.0.0.0 serves them to all hosts, without a password.",
)
@click.option(
    "--stop-timeout",
    "stop_timeout_s",
    type=float,
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the current batch when the pipeline stops.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=RETRIES,
    show_default=True,
    help="How often in a row to start again after a transient fault, after 1, 2, 4, … up to 60 seconds."
    " A batch that is done resets the count.",
)
@click.option(
    "--spark-log",
    "log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file for the output of Spark and its workers; without it, the output is discarded.",
)
@session_options
@json_option
def run(
    file: Path,
    once: bool,
    checkpoint: str | None,
    metrics_port: int | None,
    metrics_host: str,
    stop_timeout_s: float,
    retries: int,
    log: Path | None,
    master: str,
    workers: Path | None,
    settings: tuple[str, ...],
    debug: bool,
    as_json: bool,
) -> None:
    """Run a pipeline until it is stopped (Ctrl-C or SIGTERM); it finishes the current batch first.

    On a terminal the command shows progress, elsewhere it prints a line of JSON for each batch. A second signal does
    not wait. Exits with 0 at the end, 3 if no broker answers, 4 if a topic is missing, 75 after any other transient
    fault that outlasts the retries, and 1 after a fault that would come again.
    """
    from barnabas.spark.pipeline.connect import require_connected
    from barnabas.spark.pipeline.load import load_pipeline
    from barnabas.spark.pipeline.tables import located
    from barnabas.spark.session import require_spark

    declared = load_pipeline(file)
    if checkpoint is not None:
        declared = dataclasses.replace(declared, checkpoint=located(checkpoint, Path()))
    with told_in_a_line(debug), ExitStack() as open_things:
        stopping = open_things.enter_context(_stop_on_signals())
        require_connected(declared)
        require_spark()
        from barnabas.spark.pipeline.journal import Journal

        show = open_things.enter_context(_display(as_json=as_json))
        assert declared.checkpoint is not None
        journal = open_things.enter_context(Journal(declared.checkpoint))
        note_batch = open_things.enter_context(_metrics(metrics_host, metrics_port))
        watched = _Watched(show, _Notes(note_batch, journal), stopping, stop_timeout_s)

        def attempt() -> None:
            with session(declared, master, settings, workers=workers, debug=debug, log=log) as spark:
                _run(spark, declared, file.parent, watched, once=once)

        _run_with_retries(attempt, declared, watched, retries)
        reason = "signal" if stopping.count else "end of the topics" if declared.is_streaming else "end"
        show({"event": "stopped", "pipeline": declared.name, "reason": reason, **watched.totals})


def _run(spark: SparkSession, declared: Pipeline, folder: Path, watched: _Watched, *, once: bool) -> None:
    """Runs the queries in a session until they end or fail, or the user stops them."""
    from barnabas.spark.pipeline.run import PipelineRun

    # PySpark has installed its own handler for Ctrl-C in the meantime.
    with _stop_on_signals(watched.stopping):
        running = PipelineRun(spark, declared, folder, available_now=once)
        try:
            running.start()
            watched.show({"event": "started", "pipeline": declared.name, "checkpoint": declared.checkpoint})
            _look_after(running, watched)
            failure = running.error()
        finally:
            running.stop()
    if failure is not None:
        raise failure


def _run_with_retries(
    attempt: Callable[[], None], declared: Pipeline, watched: _Watched, retries: int
) -> None:
    """Runs until an attempt ends well; after transient faults it waits and tries again."""
    from barnabas.spark.failures import told
    from barnabas.spark.pipeline.connect import require_connected
    from barnabas.spark.pipeline.restarts import Restarts

    restarts = Restarts(retries)
    while True:
        batches_before = watched.totals["batches"]
        try:
            if restarts.count:
                require_connected(declared)
            attempt()
            return
        except Exception as error:
            failure = told(error)
            delay_s = restarts.delay_s(failure, batches_done=watched.totals["batches"] - batches_before)
            if delay_s is None or watched.stopping.count:
                raise
        watched.show(
            {
                "event": "restarting",
                "pipeline": declared.name,
                "restart": restarts.count,
                "delay_s": round(delay_s, 1),
                "error": "; ".join(str(failure).splitlines()),
            }
        )
        if watched.stopping.event.wait(delay_s):
            return


@dataclasses.dataclass(slots=True)
class _Watched:
    """What the attempts of a run share."""

    show: Show
    notes: _Notes
    stopping: _Stopping
    stop_timeout_s: float
    totals: dict[str, int] = dataclasses.field(default_factory=lambda: {"batches": 0, "rows": 0})


class _Stopping:
    """Whether the user has asked to stop, and how often."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.count = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.event.set()


@contextmanager
def _stop_on_signals(stopping: _Stopping | None = None) -> Iterator[_Stopping]:
    stopping = stopping or _Stopping()
    before = {each: signal.signal(each, stopping) for each in SIGNALS}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Notes(NamedTuple):
    """Those who want to know of batches: metrics, and the file for others to read."""

    metrics: Callable[[BatchReport], None]
    journal: Journal

    def note(self, report: BatchReport) -> None:
        self.metrics(report)
        self.journal.note(report)


def _look_after(running: PipelineRun, watched: _Watched) -> None:
    from barnabas.spark.pipeline.run import POLL_S

    stopping = watched.stopping

    def tell() -> None:
        for report in running.reports():
            watched.totals["batches"] += 1
            watched.totals["rows"] += report.rows
            watched.notes.note(report)
            watched.show({"event": "batch", **report.as_dict()})

    while running.is_active and not stopping.event.wait(POLL_S):
        tell()
        watched.notes.journal.beat()
    if stopping.count and running.is_active:
        watched.show({"event": "stopping"})
        running.finish_batches(watched.stop_timeout_s, is_urgent=lambda: stopping.count > 1)
    tell()
    running.stop()
    tell()


@contextmanager
def _metrics(host: str, port: int | None) -> Iterator[Callable[[BatchReport], None]]:
    """Serves metrics to Prometheus while the pipeline runs."""
    if port is None:
        yield lambda _: None
        return
    import asyncio

    from barnabas.net.http_endpoint import HttpEndpoint
    from barnabas.spark.pipeline.progress import PipelineMetrics

    metrics = PipelineMetrics()
    endpoint = HttpEndpoint(
        {
            "/metrics": lambda: ("text/plain; version=0.0.4", metrics.registry.lines()),
            "/health": lambda: ("text/plain", "ok\n"),
        }
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="pipeline-metrics", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(endpoint.open(host, port), loop).result()
        note(f"metrics on http://{host}:{endpoint.port}/metrics")
        yield metrics.note
    finally:
        asyncio.run_coroutine_threadsafe(endpoint.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextmanager
def _display(*, as_json: bool) -> Iterator[Show]:
    if as_json or not sys.stdout.isatty():

        def show(event: dict[str, Any]) -> None:
            show_json_line(event)
            sys.stdout.flush()

        yield show
        return
    with LiveDisplay() as display:
        yield display


class LiveDisplay:
    """A table that is redrawn with each batch: the last batch, and the totals."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=console or Console(highlight=False), auto_refresh=False)
        self._batches: dict[str, dict[str, Any]] = {}
        self._rows: dict[str, int] = {}
        self._state = "Spark is starting"

    def __enter__(self) -> Self:
        self._live.start()
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "batch":
            query = event["query"]
            self._batches[query] = event
            self._rows[query] = self._rows.get(query, 0) + event["rows"]
        elif kind == "started":
            self._state = f"{event['pipeline']} is running; press Ctrl-C to stop it"
        elif kind == "restarting":
            self._state = f"starts again in {event['delay_s']:g} s: {event['error']}"
        elif kind == "stopping":
            self._state = "finishing the current batch; press Ctrl-C to stop at once"
        else:
            self._state = f"{event['pipeline']} has stopped ({event['reason']})"
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold cyan")
        for title in ("query", "batch", "rows", "rows/s", "batch time", "lag", "state rows", "all rows"):
            table.add_column(title, justify="left" if title == "query" else "right")
        for query, batch in self._batches.items():
            table.add_row(
                query,
                str(batch["batch_id"]),
                f"{batch['rows']:,}",
                f"{batch['rows_per_second']:,.0f}",
                duration_text(batch["batch_ms"]),
                "-" if batch["lag"] is None else f"{batch['lag']:,}",
                f"{batch['state_rows']:,}" if batch["state_rows"] else "-",
                f"{self._rows[query]:,}",
            )
        shown = [Text(self._state, style="bold")] + ([table] if self._batches else [])
        self._live.update(Group(*shown), refresh=True)
