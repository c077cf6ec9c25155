"""A driver that is killed: a query from a topic to a topic, a table, a mirror or several sinks of a pipeline, exactly
once, in a process of its own.

    python -m tests.spark.kill_matrix.driver '[{"bootstrap": …}]'

Several jobs are run one after the other.

Where and how it fails is wrapped around the sink here; the sink knows nothing of it. At a point of a batch the driver,
its JVM included, is killed, waits until it is told to go on, or is slow.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from barnabas.client.producer.producer import Producer
from barnabas.client.producer.records import SharedTransaction
from barnabas.spark import register
from barnabas.spark.databases.sink import BatchWriter, DatabaseSink
from barnabas.spark.exactly_once.sink import TransactionalTopicSink
from barnabas.spark.exactly_once.tasks import TransactionWriter
from barnabas.spark.mirror.sink import BatchSink, MirrorSink
from barnabas.spark.pipeline.fan_out import FanOut
from barnabas.spark.pipeline.flows import Output
from barnabas.spark.pipeline.load import load_pipeline
from barnabas.spark.pipeline.run import PipelineRun
from barnabas.spark.session import start_session
from barnabas.spark.topics.sink import worker_producer
from barnabas.spark.topics.sink_columns import SinkColumns
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE_TASKS = "before the tasks"
IN_A_TASK = "in a task"
AFTER_TASKS = "after the tasks and before the commit"
BEFORE_END = "between the offsets and the end of the transaction"
AFTER_COMMIT = "after the commit and before Spark's commit log"
NEXT_PLANNED = "while the next batch is planned"
DRIVER_POINTS = (BEFORE_TASKS, IN_A_TASK, AFTER_TASKS, BEFORE_END, AFTER_COMMIT, NEXT_PLANNED)
# Of a pipeline with several sinks: when the sink with this key has the batch.
AFTER_SINK = "after {}"
DATABASE_POINTS = tuple(point for point in DRIVER_POINTS if point != BEFORE_END)

KILL = "kill"
HOLD = "hold"
KILL_WORKER = "kill the worker"
SLEEP = "sleep"

# The groups that a mirror takes along.
READERS = "readers-.*"

HELD = "held"
GO = "go"
ONCE = "once"
HOLD_TIMEOUT_S = 300
POLL_S = 0.002


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a driver is told; `folder` is for it and whoever started it."""

    folder: str
    bootstrap: str
    source: str
    out: str
    name: str
    checkpoint: str
    # A database to write to, in a table with the name of the job, instead of the topic.
    url: str = ""
    # Another cluster, to which the topic is mirrored, instead of the topic: "out" is the name that it has there.
    target: str = ""
    # The file of a pipeline with several sinks, instead of the topic.
    file: str = ""
    starting: str = "earliest"
    take_over: bool = False
    transaction_timeout_ms: int = 600_000
    offsets_per_batch: int = 400
    point: str = ""
    action: str = KILL
    batch: int = -1
    sleep_s: float = 0


def to_text(jobs: Iterable[Job]) -> str:
    return json.dumps([asdict(job) for job in jobs])


def from_text(text: str) -> list[Job]:
    return [Job(**each) for each in json.loads(text)]


class Fault:
    """Strikes at one point of one batch."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._group = os.getpgid(0)

    def at(self, point: str, batch: int) -> None:
        job = self._job
        if point == job.point and batch == job.batch:
            self._strike()

    def _strike(self) -> None:
        job = self._job
        print(f"{job.action} {job.point}", flush=True)
        folder = Path(job.folder)
        if job.action == KILL:
            # The JVM is in the group; the workers are not, and end when it is gone.
            os.killpg(self._group, signal.SIGKILL)
            time.sleep(HOLD_TIMEOUT_S)
        elif job.action == SLEEP:
            time.sleep(job.sleep_s)
        elif job.action == KILL_WORKER:
            if not (folder / ONCE).exists():
                (folder / ONCE).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        elif job.action == HOLD:
            (folder / HELD).touch()
            wait_until(
                lambda: (folder / GO).exists(), "nobody says go", timeout_s=HOLD_TIMEOUT_S, poll_s=POLL_S
            )

    def watch(self, path: Path) -> None:
        """Strikes as soon as there is a file, while the driver goes on."""
        while not path.exists():
            time.sleep(POLL_S)
        self._strike()


class StruckProducer:
    """The driver's producer, with points around the end of a transaction."""

    def __init__(self, producer: Producer, fault: Fault, batch: int) -> None:
        self._producer = producer
        self._fault = fault
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self) -> None:
        self._fault.at(BEFORE_END, self._batch)
        self._producer.commit_transaction()
        self._fault.at(AFTER_COMMIT, self._batch)


class StruckWriter(TransactionWriter):
    """A task that strikes when it has written some of its rows."""

    def __init__(
        self,
        producer: Mapping[str, str],
        columns: SinkColumns,
        shared: SharedTransaction,
        fault: Fault,
        batch: int,
    ) -> None:
        super().__init__(producer, columns, shared)
        self._fault = fault
        self._batch = batch

    def _write(self, batches: Iterator[pa.RecordBatch]) -> int:
        return super()._write(self._struck(batches))

    def _struck(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            worker_producer(self._producer).flush()
            self._fault.at(IN_A_TASK, self._batch)
            yield batch.slice(half)


class StruckBatchWriter(BatchWriter):
    """The task that writes to a database, in whose transaction the points are."""

    def __init__(self, fault: Fault, **others: Any) -> None:
        super().__init__(**others)
        self._fault = fault

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return super().__call__(self._struck(batches))

    def _struck(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            self._fault.at(IN_A_TASK, self._batch_id)
            yield batch.slice(half)

    def commit(self, connection: Any) -> None:
        self._fault.at(AFTER_TASKS, self._batch_id)
        super().commit(connection)
        self._fault.at(AFTER_COMMIT, self._batch_id)


class StruckDatabaseSink(DatabaseSink):
    def __init__(self, job: Job, fault: Fault) -> None:
        super().__init__(job.url, job.name.replace("-", "_"))
        self._fault = fault
        self.writer_class = partial(StruckBatchWriter, fault)  # type: ignore[assignment]

    def write_batch(self, frame: Any, batch_id: int, query_id: str) -> None:
        self._fault.at(BEFORE_TASKS, batch_id)
        super().write_batch(frame.selectExpr("cast(value AS string) AS value"), batch_id, query_id)


class Struck(TransactionalTopicSink):
    """The points of a sink that writes to topics."""

    def __init__(self, fault: Fault, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._fault = fault
        self._batch = -1

    def write_batch(self, frame: Any, batch_id: int, query_id: str) -> None:
        self._batch = batch_id
        super().write_batch(frame, batch_id, query_id)

    def _write(self, *arguments: Any) -> None:
        real = self._producer
        assert real is not None
        struck: Any = StruckProducer(real, self._fault, self._batch)
        self._producer = struck
        try:
            super()._write(*arguments)
        finally:
            if self._producer is struck:
                self._producer = real

    def _writer(self, columns: SinkColumns, shared: SharedTransaction) -> TransactionWriter:
        return StruckWriter(self._settings, columns, shared, self._fault, self._batch)

    def _run_tasks(self, *arguments: Any) -> None:
        self._fault.at(BEFORE_TASKS, self._batch)
        super()._run_tasks(*arguments)
        self._fault.at(AFTER_TASKS, self._batch)


class StruckBatchSink(Struck, BatchSink):
    pass


class StruckMirrorSink(MirrorSink):
    def __init__(self, job: Job, fault: Fault) -> None:
        self._fault = fault
        super().__init__(
            {"kafka.bootstrap.servers": job.bootstrap},
            {"kafka.bootstrap.servers": job.target, "kafka.linger.ms": "0"},
            name=job.name,
            rename=job.out.replace(job.source, "{topic}"),
            groups=READERS,
            checkpoint=job.checkpoint,
            transaction_timeout_ms=job.transaction_timeout_ms,
            take_over=job.take_over,
        )

    def _open_batch_sink(self, **settings: Any) -> BatchSink:
        return StruckBatchSink(self._fault, self, self._target, **settings)


class StruckFanOut(FanOut):
    """Has a point after each sink of a batch."""

    fault: ClassVar[Fault]

    def _write(self, output: Output, sink: Any, rows: Any, batch_id: int, query_id: str) -> None:
        super()._write(output, sink, rows, batch_id, query_id)
        self.fault.at(AFTER_SINK.format(output.key), batch_id)


class StruckRun(PipelineRun):
    fan_out_class = StruckFanOut


def run_file(spark: SparkSession, job: Job, fault: Fault) -> None:
    """Runs the pipeline until it has read everything."""
    StruckFanOut.fault = fault
    file = Path(job.file)
    running = StruckRun(spark, load_pipeline(file), file.parent, available_now=True)
    try:
        running.start()
        wait_until(
            lambda: not running.is_active, "the pipeline ends", timeout_s=HOLD_TIMEOUT_S, poll_s=10 * POLL_S
        )
        failure = running.error()
    finally:
        running.stop()
    if failure is not None:
        raise failure


def open_sink(job: Job, fault: Fault) -> Struck | StruckMirrorSink:
    if job.target:
        return StruckMirrorSink(job, fault)
    return Struck(
        fault,
        {"kafka.bootstrap.servers": job.bootstrap, "kafka.linger.ms": "0"},
        transactional_id=job.name,
        group=job.name,
        topic=job.out,
        checkpoint=job.checkpoint,
        transaction_timeout_ms=job.transaction_timeout_ms,
        take_over=job.take_over,
    )


def main(jobs: list[Job]) -> None:
    spark = start_session(
        "kill matrix",
        master="local[2]",
        settings={
            "spark.driver.memory": "700m",
            # A JVM that lives for seconds has no use for what makes one fast that lives for hours.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{jobs[0].folder}/warehouse",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    for job in jobs:
        run(spark, job)
    spark.stop()


def run(spark: SparkSession, job: Job) -> None:
    fault = Fault(job)
    if job.file:
        run_file(spark, job, fault)
        return
    if job.point == NEXT_PLANNED:
        ended = Path(job.checkpoint) / "commits" / str(job.batch)
        threading.Thread(target=fault.watch, args=(ended,), daemon=True).start()
    frame = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", job.source)
        .option("startingOffsets", job.starting)
        .option("maxOffsetsPerTrigger", job.offsets_per_batch)
        .option("includeHeaders", bool(job.target))
        .load()
    )
    if not job.target:
        frame = frame.select("key", "value")
    with contextlib.ExitStack() as stack:
        sink: Any = StruckDatabaseSink(job, fault) if job.url else stack.enter_context(open_sink(job, fault))
        query = (
            frame.writeStream.foreachBatch(sink)
            .option("checkpointLocation", job.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


if __name__ == "__main__":
    main(from_text(sys.argv[1]))
