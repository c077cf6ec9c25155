"""The tasks of a transactional batch.

First each row gets its partition (`Assigner`): by the key, as Kafka's Java clients choose it, or from the row. Spark
then shuffles the rows so that a partition of a topic is in one task, which writes them to the driver's transaction
(`TransactionWriter`): brokers number the batches of a transaction in a partition, so only one task may write there.

A repeated task cannot know how much of the earlier run was written, and brokers could mistake its batches for those of
the earlier run. So it writes nothing and reports this, and the driver starts the batch again with another epoch. Spark
does not inform a task that its whole stage is repeated; each task reports its stage, and the driver checks it.

A task reports an error in a row and does not raise it, because the driver needs to know the cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from barnabas.client.producer.bytes_columns import binary_values
from barnabas.client.producer.partitioners import partitions_for_keys
from barnabas.client.producer.records import SharedTransaction
from barnabas.errors import KafkaError
from barnabas.spark.topics.sink import forget_producer, send_all, worker_producer
from barnabas.spark.topics.sink_columns import KEY, PARTITION, TOPIC, SinkColumns

OUTCOME_SCHEMA: Final = "stage int, records bigint, code int, message string, is_rerun boolean"


class TaskRunAgain(Exception):
    """Another run of this task has, or may have, written to the transaction."""


class Assigner:
    """Gives rows their partitions. Rows without a key go where one Arrow batch after the other goes."""

    def __init__(
        self,
        producer: Mapping[str, str],
        columns: SinkColumns,
        partition_counts: Mapping[str, int],
        batch_id: int,
    ) -> None:
        self._producer = dict(producer)
        self._columns = columns
        self._partition_counts = dict(partition_counts)
        self._next = batch_id

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(name for name in (TOPIC, KEY, PARTITION) if name in self._columns.names)

    def assign(self, rows: pa.Array) -> pa.Array:
        given = {name: rows.field(name) for name in self.arguments}
        count = len(rows)
        topics = given[TOPIC].unique().to_pylist() if TOPIC in given else [self._columns.topic]
        keys: list[bytes | None] = binary_values(given[KEY]) if KEY in given else [None] * count
        self._next += 1
        found: Any = None
        for topic in topics:
            partition_count = self._partition_count(topic)
            made = pa.array(
                partitions_for_keys(keys, partition_count, self._next % partition_count), pa.int32()
            )
            found = (
                made
                if found is None
                else pc.if_else(pc.equal(given[TOPIC], topic).fill_null(False), made, found)
            )
        if PARTITION in given:
            found = pc.coalesce(given[PARTITION].cast(pa.int32()), found)
        return found

    def _partition_count(self, topic: str | None) -> int:
        """Which task a row goes to depends on its partition alone, so workers need not agree on this."""
        if topic is None:
            # A row without a topic is reported where it is to be written.
            return 1
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = worker_producer(self._producer).partitions_for(
                topic, creates=True
            )
        return count


class TransactionWriter:
    """Writes the rows of a task to the transaction of its batch. Each row has its partition."""

    def __init__(self, producer: Mapping[str, str], columns: SinkColumns, shared: SharedTransaction) -> None:
        self._producer = dict(producer)
        self._columns = columns
        self._shared = shared

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records, code, message, is_rerun = 0, 0, "", False
        try:
            _refuse_later_attempts()
            records = self._write(batches)
        except TaskRunAgain as error:
            message, is_rerun = str(error), True
        except KafkaError as error:
            forget_producer(self._producer)
            code, message = error.code, str(error)
        except BaseException:
            forget_producer(self._producer)
            raise
        if code or is_rerun:
            # Spark expects a task to take all of its input.
            for _ in batches:
                pass
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([_stage()], pa.int32()),
                pa.array([records], pa.int64()),
                pa.array([code], pa.int32()),
                pa.array([message]),
                pa.array([is_rerun]),
            ],
            names=["stage", "records", "code", "message", "is_rerun"],
        )

    def _write(self, batches: Iterator[pa.RecordBatch]) -> int:
        first = next(batches, None)
        if first is None:
            return 0
        producer = worker_producer(self._producer)
        producer.join_transaction(self._shared)
        records = send_all(producer, self._columns, chain([first], batches))
        producer.leave_transaction()
        return records


def _refuse_later_attempts() -> None:
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        raise TaskRunAgain(f"task {context.partitionId()} was run {context.attemptNumber() + 1} times")


def _stage() -> int:
    context = TaskContext.get()
    return -1 if context is None else context.stageId()
