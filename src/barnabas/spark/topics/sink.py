"""Rows to topics, at least once: a task ends when its records are acknowledged, and a repeated task writes again.

    frame.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", …).option("topic", "out").save()
    frame.writeStream.format("barnabas").option("kafka.bootstrap.servers", …).option("topic", "out").start()

`sink_columns` describes the columns. Tasks pass Arrow columns to a producer as they come from Spark. The producer is
idempotent, and serves the later tasks of its Python worker too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.producer.futures import SendManyFuture
from barnabas.client.producer.producer import Producer
from barnabas.errors import InvalidConfig
from barnabas.spark.topics.sink_columns import SinkColumns, for_producer, sink_columns
from barnabas.spark.topics.sink_options import SinkOptions, parse_sink_options, producer_settings
from barnabas.spark.worker_memory import settle_in
from barnabas.spark.workers import require_workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

# Batches of rows whose fate is open; the producer's memory bounds what they hold.
OPEN_FUTURES_MAX: Final = 64
PRODUCERS_MAX: Final = 4
WRITTEN_SCHEMA: Final = "records bigint"

_producers: dict[tuple[tuple[str, str], ...], Producer] = {}


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of one task, whose records are all acknowledged."""

    records: int


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of `df.write.format("barnabas")`."""
    parsed = parse_sink_options(options)
    columns = _columns(parsed, schema, overwrite)
    if parsed.topic is not None:
        _check_topic(parsed.producer, parsed.topic)
    return BatchWriter(parsed.producer, columns)


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream.format("barnabas")`."""
    parsed = parse_sink_options(options)
    return StreamWriter(parsed.producer, _columns(parsed, schema, overwrite))


def _columns(options: SinkOptions, schema: StructType, overwrite: bool) -> SinkColumns:
    if overwrite:
        raise InvalidConfig(
            "a topic cannot be overwritten: use mode('append'), or outputMode 'append' or 'update'"
        )
    # In Spark's kafka format the option stands above the column.
    return sink_columns(schema, options.topic, is_topic_for_all=True)


def _check_topic(producer: Mapping[str, str], topic: str) -> None:
    """Raises the error of the topic before anything is started; brokers that create topics automatically create it."""
    with Producer(producer) as asked:
        asked.partitions_for(topic, creates=True)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, producer: Mapping[str, str], columns: SinkColumns) -> None:
        self._producer = dict(producer)
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_all(self._producer, self._columns, iterator))


class StreamWriter(DataSourceStreamArrowWriter):
    """A batch that is run again is written again: there is nothing to commit and nothing to undo."""

    def __init__(self, producer: Mapping[str, str], columns: SinkColumns) -> None:
        self._producer = dict(producer)
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_all(self._producer, self._columns, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


class TopicSink:
    """Writes the batches of a query to a topic, at least once; rows may name other topics in a column `topic`."""

    def __init__(self, kafka_options: Mapping[str, str], *, topic: str | None = None) -> None:
        self._producer = producer_settings(kafka_options)
        self._topic = topic

    def write_batch(self, frame: DataFrame, batch_id: int, query_id: str) -> None:
        columns = sink_columns(frame.schema, self._topic, is_topic_for_all=False)
        writer = TaskWriter(self._producer, columns)
        require_workers(frame.sparkSession)
        frame.select(*columns.names).mapInArrow(writer.run, WRITTEN_SCHEMA).collect()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """For `foreachBatch`."""
        self.write_batch(frame, batch_id, "")


class TaskWriter:
    """The work of the tasks of a batch; Spark sends it to them unchanged."""

    def __init__(self, producer: Mapping[str, str], columns: SinkColumns) -> None:
        self._producer = dict(producer)
        self._columns = columns

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"records": [write_all(self._producer, self._columns, batches)]})


def write_all(settings: Mapping[str, str], columns: SinkColumns, batches: Iterable[pa.RecordBatch]) -> int:
    """Writes all rows and waits until they are acknowledged; how many there were. Runs in a task."""
    producer = worker_producer(settings)
    try:
        records = send_all(producer, columns, batches)
    except BaseException:
        forget_producer(settings)
        raise
    return records


def send_all(producer: Producer, columns: SinkColumns, batches: Iterable[pa.RecordBatch]) -> int:
    settle_in()
    records = 0
    futures: deque[SendManyFuture] = deque()
    for batch in batches:
        for topic, rows in for_producer(batch, columns):
            futures.append(producer.send_many(topic, rows))
        records += batch.num_rows
        while len(futures) > OPEN_FUTURES_MAX:
            _check(futures.popleft())
    producer.flush()
    for future in futures:
        _check(future)
    return records


def _check(future: SendManyFuture) -> None:
    error = future.exception()
    if error is not None:
        raise error


def worker_producer(settings: Mapping[str, Any]) -> Producer:
    """The producer of this Python worker with these settings; it stays for the next task."""
    known = tuple(sorted(settings.items()))
    producer = _producers.get(known)
    if producer is None:
        while len(_producers) >= PRODUCERS_MAX:
            _producers.pop(next(iter(_producers))).close(timeout_ms=0)
        producer = _producers[known] = Producer(settings)
    return producer


def forget_producer(settings: Mapping[str, Any]) -> None:
    """After a failure: the next task gets another one, and nothing that is left is sent."""
    producer = _producers.pop(tuple(sorted(settings.items())), None)
    if producer is not None:
        producer.close(timeout_ms=0)
