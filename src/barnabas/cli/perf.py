"""`barnabas perf`: measures the speed of a cluster with Barnabas' clients."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.consume import open_consumer
from barnabas.cli.produce import open_producer
from barnabas.cli.shared.arguments import partitions_of
from barnabas.cli.shared.client_settings import parse_client_settings
from barnabas.cli.shared.group import ClusterGroup
from barnabas.cli.shared.output import Column, fail, show, show_json
from barnabas.cli.shared.progress import progress_bar
from barnabas.cli.shared.ranges import Range, Where
from barnabas.cli.shared.record_options import (
    acks_option,
    compression_option,
    records_option,
    settings_option,
    size_option,
)
from barnabas.cli.shared.target import Target, cluster_command, complete_topics, described_topic

if TYPE_CHECKING:
    from barnabas.errors import KafkaError

# Different values, so that compression is not trivial.
DISTINCT_VALUES: Final = 1_000
RECORDS_A_CALL: Final = 500
POLL_MS: Final = 1_000.0
PERCENTILES: Final = (50.0, 95.0, 99.0, 99.9)

RATES: Final = (
    Column("records", "records", lambda count: f"{count:,}"),
    Column("seconds", "seconds", lambda seconds: f"{seconds:.2f}"),
    Column("records_per_second", "records/s", lambda rate: f"{rate:,.0f}"),
    Column("megabytes_per_second", "MB/s", lambda rate: f"{rate:,.2f}"),
)
LATENCIES: Final = tuple(
    Column(key, title, lambda milliseconds: f"{milliseconds:,.2f}")
    for key, title in (
        ("p50_ms", "p50 ms"),
        ("p95_ms", "p95 ms"),
        ("p99_ms", "p99 ms"),
        ("p99.9_ms", "p99.9 ms"),
        ("max_ms", "max ms"),
    )
)


@click.group(cls=ClusterGroup)
def perf() -> None:
    """Measure how fast a cluster is."""


@perf.command()
@click.argument("topic", shell_complete=complete_topics)
@records_option(1_000_000)
@size_option(0)
@click.option(
    "--rate", type=click.FloatRange(min=0.001), metavar="N", help="Records per second.  [default: unlimited]"
)
@click.option(
    "--each",
    is_flag=True,
    help="Call send() for each record and measure its latency, instead of send_many().",
)
@acks_option
@compression_option
@settings_option("producer")
@cluster_command
def produce(
    target: Target,
    topic: str,
    records: int,
    size: int,
    rate: float | None,
    each: bool,
    acks: str,
    compression: str,
    settings: tuple[str, ...],
) -> None:
    """Send records of random bytes to a topic."""
    with target.admin() as admin:
        described_topic(admin, topic)
    values = [os.urandom(size) for _ in range(DISTINCT_VALUES)]
    ring = values + values[:RECORDS_A_CALL]
    chosen = {"acks": acks, "compression.type": compression, **parse_client_settings("producer", settings)}
    with target.unreachable_is_told(), open_producer(target, chosen) as producer:
        pace = Pace(rate)
        latencies = Latencies()
        started_s = time.perf_counter()
        with progress_bar("producing", records, unit="records") as advance:
            sent = 0
            futures = []
            while sent < records:
                count = min(records - sent, pace.at_most(RECORDS_A_CALL))
                first = sent % DISTINCT_VALUES
                if each:
                    for index in range(sent, sent + count):
                        done = partial(latencies.on_delivery, time.perf_counter())
                        producer.send(topic, values[index % DISTINCT_VALUES], on_delivery=done)
                else:
                    futures.append(producer.send_many(topic, ring[first : first + count]))
                    while futures and futures[0].done():
                        futures.pop(0).result()
                sent += count
                advance(count)
                pace.wait(sent)
            producer.flush()
        seconds = time.perf_counter() - started_s
        for future in futures:
            future.result()
    if latencies.error is not None:
        fail(f"{latencies.failed} of {records} records were not delivered: {latencies.error}")
    row = {**_rates(records, records * size, seconds), **(latencies.row() if each else {})}
    _tell(target, row, RATES + (LATENCIES if each else ()))


@perf.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:P,...]...", shell_complete=complete_topics)
@click.option(
    "-n", "--records", type=click.IntRange(min=1), metavar="N", help="Stop after N records.  [default: all]"
)
@click.option(
    "--as",
    "form",
    type=click.Choice(["records", "batches", "arrow"]),
    default="records",
    show_default=True,
    help="poll(), poll_batches() or poll_arrow().",
)
@settings_option("consumer")
@cluster_command
def consume(
    target: Target, topics: tuple[str, ...], records: int | None, form: str, settings: tuple[str, ...]
) -> None:
    """Read the records of topics, and discard them."""
    with target.admin() as admin:
        partitions = partitions_of(admin, topics)
    chosen: dict[str, Any] = {"max.poll.records": 10_000, **parse_client_settings("consumer", settings)}
    with target.unreachable_is_told(), open_consumer(target, chosen) as consumer:
        wanted = Range(consumer, partitions, Where("beginning"), Where("end"))
        total = wanted.total if records is None else min(records, wanted.total or 0)
        if not total:
            fail("there are no records to read")
        count = size = 0
        started_s = time.perf_counter()
        with progress_bar("consuming", total, unit="records") as advance:
            if form == "records":
                for polled in wanted.polls(total):
                    count += len(polled)
                    size += sum([len(record.value or b"") + len(record.key or b"") for record in polled])
                    advance(len(polled))
            else:
                ends = consumer.end_offsets(*partitions)
                while count < total and any(consumer.position(each) < ends[each] for each in partitions):
                    some, some_bytes = _poll_many(consumer, form)
                    count += some
                    size += some_bytes
                    advance(some)
        seconds = time.perf_counter() - started_s
    _tell(target, _rates(count, size, seconds), RATES)


def _poll_many(consumer: Any, form: str) -> tuple[int, int]:
    """The number of records that arrived, and their bytes."""
    if form == "arrow":
        batch = consumer.poll_arrow(POLL_MS)
        return batch.num_rows, batch.nbytes
    batches = consumer.poll_batches(POLL_MS)
    return sum(each.header.record_count for each in batches), sum(each.header.size_bytes for each in batches)


@perf.command()
@click.argument("topic", shell_complete=complete_topics)
@records_option(1_000)
@size_option(8)
@click.option(
    "--rate",
    type=click.FloatRange(min=0.001),
    default=1_000.0,
    show_default="1000",
    metavar="N",
    help="Records per second.",
)
@acks_option
@settings_option("producer")
@cluster_command
def latency(
    target: Target, topic: str, records: int, size: int, rate: float, acks: str, settings: tuple[str, ...]
) -> None:
    """Measure how long records take from send() to poll(), one after the other at a steady rate."""
    with target.admin() as admin:
        partitions = partitions_of(admin, [topic])
    chosen: dict[str, Any] = {"acks": acks, "linger.ms": 0, **parse_client_settings("producer", settings)}
    fill = os.urandom(size - 8)
    sent_ns: dict[int, int] = {}
    latencies = Latencies()
    with (
        target.unreachable_is_told(),
        open_consumer(target, {"fetch.max.wait.ms": 500}) as consumer,
        open_producer(target, chosen) as producer,
    ):
        Range(consumer, partitions, Where("end"), None)
        # The first record includes the time to connect and the first fetch.
        producer.send(topic, b"\0" * size, partition=partitions[0].partition).result(target.timeout_ms / 1000)
        _wait_for_first(consumer, target)
        with progress_bar("measuring", records, unit="records") as advance:
            begin_s = time.perf_counter()
            received = number = 0
            deadline_s = begin_s + records / rate + target.timeout_ms / 1000
            while received < records:
                now_s = time.perf_counter()
                if number < records and now_s >= begin_s + number / rate:
                    sent_ns[number] = time.perf_counter_ns()
                    producer.send(topic, number.to_bytes(8) + fill)
                    number += 1
                next_s = begin_s + number / rate if number < records else now_s + 1
                for record in consumer.poll(max(0.0, (next_s - time.perf_counter()) * 1000)):
                    sent = sent_ns.pop(int.from_bytes(record.value[:8]), None)
                    if sent is not None:
                        latencies.add((time.perf_counter_ns() - sent) / 1e6)
                        received += 1
                        advance(1)
                if time.perf_counter() > deadline_s:
                    fail(f"{records - received} of {records} records did not arrive in time")
    _tell(target, {"records": records, **latencies.row()}, (RATES[0], *LATENCIES))


def _wait_for_first(consumer: Any, target: Target) -> None:
    deadline_s = time.perf_counter() + target.timeout_ms / 1000
    while not consumer.poll(POLL_MS):
        if time.perf_counter() > deadline_s:
            fail("the first record did not arrive in time")


class Pace:
    """Keeps to a rate of records per second."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._begin_s = time.perf_counter()

    def at_most(self, count: int) -> int:
        """How many records to send at once: at a low rate, those of a hundredth of a second."""
        return count if self._rate is None else max(1, min(count, int(self._rate / 100)))

    def wait(self, sent: int) -> None:
        if self._rate is not None:
            ahead_s = self._begin_s + sent / self._rate - time.perf_counter()
            if ahead_s > 0:
                time.sleep(ahead_s)


class Latencies:
    """Latencies in milliseconds, and failures."""

    def __init__(self) -> None:
        self._all_ms: list[float] = []
        self.failed = 0
        self.error: KafkaError | None = None

    def on_delivery(self, sent_s: float, metadata: object, error: KafkaError | None) -> None:
        if error is None:
            self._all_ms.append((time.perf_counter() - sent_s) * 1000)
        else:
            self.failed += 1
            self.error = error

    def add(self, milliseconds: float) -> None:
        self._all_ms.append(milliseconds)

    def row(self) -> dict[str, float]:
        ordered = sorted(self._all_ms) or [0.0]
        found = {f"p{percent:g}_ms": _percentile(ordered, percent) for percent in PERCENTILES}
        return {**found, "max_ms": ordered[-1]}


def _percentile(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _rates(records: int, size_bytes: int, seconds: float) -> dict[str, Any]:
    return {
        "records": records,
        "bytes": size_bytes,
        "seconds": seconds,
        "records_per_second": records / seconds,
        "megabytes_per_second": size_bytes / seconds / 1e6,
    }


def _tell(target: Target, row: dict[str, Any], columns: Sequence[Column]) -> None:
    if target.as_json:
        show_json(row)
    else:
        show([row], columns, as_json=False, nothing="")
