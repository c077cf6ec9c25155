"""Spark with our sources and our sink compared with Spark's own connector, in one session of two cores.

A round reads or writes all records with each contender in turn, warm, and ratios are taken within a round. Reading ends
in Spark's `noop` sink, which takes every column of every row; Spark generates the written rows from numbers. Records
have values of 200 bytes and keys of 8, in batches of 16 KiB, Kafka's default. The logs of the brokers and the
checkpoints of the queries are in memory if there is room (/dev/shm): a round writes gigabytes, and unwritten data on
the disk slows down the next contender.

    BENCH_SPARK_RECORDS   5,000,000: the number of records
    BENCH_SPARK_ROUNDS    3
    BENCH_SPARK_STREAM_S  30: the time of the stream, after a third of that for warm-up
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.model import Offset, TimestampMs
from barnabas.records.builder import BatchBuilder
from barnabas.spark import register
from barnabas.spark.session import start_session
from bench import load
from bench.beside import tell
from bench.kafka import ApacheKafka, MeasuredBroker
from bench.spark_stream import measure_stream
from bench.table import Table, ratio, verdict
from tests.peers.kafka_peer import V4, PeerUnavailable, jars
from tests.spark.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS: Final = int(os.environ.get("BENCH_SPARK_RECORDS", "5000000"))
ROUNDS: Final = int(os.environ.get("BENCH_SPARK_ROUNDS", "3"))
STREAM_S: Final = float(os.environ.get("BENCH_SPARK_STREAM_S", "30"))

VALUE_BYTES: Final = 200
PARTITIONS: Final = 4
# About 16 KiB, the largest batch of a producer by default.
BATCH_RECORDS: Final = 75
FRAME_BYTES: Final = 4_096
STREAM_RECORDS_A_SECOND: Final = 20_000
TRIGGER_MS: Final = 500
WAIT_S: Final = 600

SOURCE_RATIO_MIN: Final = 3.0
SEGMENTS_RATIO_MIN: Final = 3.5
SINK_RATIO_MIN: Final = 1.8
FIRST_BATCH_RATIO_MIN: Final = 1.0
P99_MAX_S: Final = 2.0

MEMORY: Final = Path("/dev/shm")
# Two topics at a time, and as much again that is being deleted.
MEMORY_BYTES_MIN: Final = 5 * RECORDS * (VALUE_BYTES + 20)

# Seconds of the rounds, by contender.
Spent: TypeAlias = dict[str, list[float]]

OURS: Final = "barnabas"
SEGMENTS: Final = "barnabas-log"
CONNECTOR: Final = "kafka"
TOPIC: Final = "records"
SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}


def run() -> bool:
    try:
        libraries = connector_jars()
        jars(V4)
    except PeerUnavailable as reason:
        print(f"Spark's connector is NOT measured, and nothing beside it: {reason}")
        return False
    in_memory = _has_room(MEMORY)
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=MEMORY if in_memory else None) as name,
        ExitStack() as stack,
    ):
        folder = Path(name)
        settings = {**SETTINGS, "spark.jars": ",".join(map(str, libraries))}
        spark = start_session("bench", master="local[2]", settings=settings)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        measured = _Bench(spark, folder, "memory" if in_memory else "files")
        with MeasuredBroker(folder / "ours") as server:
            measured.read("Barnabas", server, segments=folder / "ours")
            measured.write("Barnabas", server)
            measured.first_batches(server)
            met = measured.stream(server)
        with ApacheKafka(folder / "kafka") as server:
            measured.read(f"Apache Kafka {V4}", server)
            measured.write(f"Apache Kafka {V4}", server)
        return measured.report() and met


class _Bench:
    def __init__(self, spark: SparkSession, folder: Path, files_in: str) -> None:
        self._spark = spark
        self._folder = folder
        self._table = Table(
            f"Spark {spark.version}, local[2]: {RECORDS:,} records of {VALUE_BYTES} bytes,"
            f" logs and checkpoints in {files_in}, medians of {ROUNDS} rounds",
            ("", "the connector", "Barnabas", "ratio", "target", ""),
        )
        self._is_met = True

    def report(self) -> bool:
        self._table.print()
        return self._is_met

    def read(self, title: str, server: MeasuredBroker, segments: Path | None = None) -> None:
        server.create_topic(TOPIC, PARTITIONS)
        tell(f"filling {TOPIC} of {title}")
        _fill(server)
        contenders: dict[str, Callable[[], None]] = {
            kind: partial(self._read, kind, server) for kind in (CONNECTOR, OURS)
        }
        if segments is not None:
            contenders[SEGMENTS] = partial(self._read_segments, segments)
        spent = self._in_turn(f"reading from {title}", contenders)
        self._add(f"read from {title}", spent, OURS, SOURCE_RATIO_MIN)
        if segments is not None:
            self._add("read from log segments", spent, SEGMENTS, SEGMENTS_RATIO_MIN)
        server.delete_topic(TOPIC)

    def write(self, title: str, server: MeasuredBroker) -> None:
        def write(kind: str) -> None:
            server.create_topic(kind, PARTITIONS)
            try:
                writer = _made(self._spark).write.format(kind).mode("append").option("topic", kind)
                writer.option("kafka.bootstrap.servers", server.address).save()
            finally:
                server.delete_topic(kind)

        spent = self._in_turn(
            f"writing to {title}",
            {kind: partial(write, kind) for kind in (CONNECTOR, OURS)},
        )
        self._add(f"write to {title}", spent, OURS, SINK_RATIO_MIN)

    def first_batches(self, server: MeasuredBroker) -> None:
        """From the start of a query to its first batch of a few records, on a session that is warm."""
        server.create_topic(TOPIC, PARTITIONS)
        _fill(server, 1_500)
        spent = self._in_turn(
            "first batches",
            {kind: partial(self._first_batch, kind, server) for kind in (CONNECTOR, OURS)},
        )
        server.delete_topic(TOPIC)
        theirs, ours = (f"{median(spent[each]):.2f} s" for each in (CONNECTOR, OURS))
        self._add_ratio("first batch of a stream", (theirs, ours), spent, OURS, FIRST_BATCH_RATIO_MIN)

    def stream(self, server: MeasuredBroker) -> bool:
        tell(f"streaming {STREAM_RECORDS_A_SECOND:,} records/s for {STREAM_S:g} s")
        for topic in ("in", "out"):
            server.create_topic(topic, PARTITIONS)
        reader = self._spark.readStream.format(OURS).option("kafka.bootstrap.servers", server.address)
        frame = reader.option("subscribe", "in").option("startingOffsets", "earliest").load()
        writer = frame.select("key", "value").writeStream.format(OURS)
        writer = writer.option("kafka.bootstrap.servers", server.address)
        writer = writer.option("topic", "out").option("checkpointLocation", str(self._folder / "stream"))
        query = writer.trigger(processingTime=f"{TRIGGER_MS} milliseconds").start()
        try:
            latencies_s = measure_stream(
                server.address, "in", "out", a_second=STREAM_RECORDS_A_SECOND, measured_s=STREAM_S
            )
            failure = query.exception()
            assert failure is None, failure
        finally:
            query.stop()
        p50, p99 = (latencies_s[int(len(latencies_s) * share)] for share in (0.5, 0.99))
        table = Table(
            f"A stream of {STREAM_RECORDS_A_SECOND:,} records/s, topic to topic, triggers of {TRIGGER_MS} ms:"
            f" producer to consumer, {len(latencies_s):,} records",
            ("", "p50", "p99", "target", ""),
        )
        met = p99 < P99_MAX_S
        table.add("end to end", f"{p50:.2f} s", f"{p99:.2f} s", f"p99 < {P99_MAX_S:g} s", verdict(met))
        table.print()
        return met

    def _in_turn(self, title: str, contenders: dict[str, Callable[[], None]]) -> Spent:
        spent: Spent = {name: [] for name in contenders}
        for number in range(-1, ROUNDS):
            order = list(contenders.items())
            for name, work in order if number % 2 == 0 else reversed(order):
                start_s = time.perf_counter()
                work()
                taken_s = time.perf_counter() - start_s
                is_warm = number >= 0
                tell(f"{title}: {name}{'' if is_warm else ', warming up'}: {taken_s:.2f} s")
                if is_warm:
                    spent[name].append(taken_s)
        return spent

    def _add(self, title: str, spent: Spent, name: str, ratio_min: float) -> None:
        theirs, ours = (f"{RECORDS / median(spent[each]):,.0f}/s" for each in (CONNECTOR, name))
        self._add_ratio(title, (theirs, ours), spent, name, ratio_min)

    def _add_ratio(
        self, title: str, cells: tuple[str, str], spent: Spent, name: str, ratio_min: float
    ) -> None:
        """A row; a ratio that is too small fails the whole benchmark."""
        to_connector = median(
            [theirs / ours for theirs, ours in zip(spent[CONNECTOR], spent[name], strict=True)]
        )
        is_met = to_connector >= ratio_min
        self._is_met &= is_met
        self._table.add(title, *cells, ratio(to_connector), f"≥ {ratio_min:g}×", verdict(is_met))

    def _read(self, kind: str, server: MeasuredBroker) -> None:
        reader = self._spark.read.format(kind).option("kafka.bootstrap.servers", server.address)
        _consume(reader.option("subscribe", TOPIC).load())

    def _read_segments(self, directory: Path) -> None:
        _consume(self._spark.read.format(SEGMENTS).option("topics", TOPIC).load(str(directory)))

    def _first_batch(self, kind: str, server: MeasuredBroker) -> None:
        reader = self._spark.readStream.format(kind).option("kafka.bootstrap.servers", server.address)
        frame = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(WAIT_S)
            assert query.exception() is None


def _has_room(folder: Path) -> bool:
    return folder.is_dir() and shutil.disk_usage(folder).free >= MEMORY_BYTES_MIN


def _consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _made(spark: SparkSession) -> DataFrame:
    """Rows that cost Spark next to nothing to make."""
    padding = "x" * (VALUE_BYTES - 10)
    return spark.range(0, RECORDS, numPartitions=PARTITIONS).selectExpr(
        "cast(cast(id AS string) AS binary) AS key",
        f"cast(concat(lpad(cast(id AS string), 10, '0'), '{padding}') AS binary) AS value",
    )


def _fill(server: MeasuredBroker, records: int = RECORDS) -> None:
    builder = BatchBuilder(base_offset=Offset(0))
    now_ms = int(time.time() * 1_000)
    for number in range(BATCH_RECORDS):
        builder.append(TimestampMs(now_ms), b"%08d" % number, os.urandom(VALUE_BYTES))
    batch = bytes(builder.build())
    buffer = bytearray(FRAME_BYTES)
    with load.connect(server.port) as connected:
        requests = [load.produce_frame(TOPIC, batch, partition) for partition in range(PARTITIONS)]
        for number in range(records // BATCH_RECORDS):
            connected.sendall(requests[number % PARTITIONS])
            load.check_produced(load.read_frame(connected, buffer))
