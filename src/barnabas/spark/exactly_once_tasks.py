"""What the tasks of a transactional batch do.

First each row gets its partition (`Assigner`): by the key, as Kafka's clients in Java choose it, or as the row says.
Rows are then shuffled so that a partition of a topic is in one task, which writes them to the driver's transaction
(`TransactionWriter`): brokers number what a transaction writes to a partition, so nobody else may write there.

A task that is run again cannot know how much of the earlier run is in, and what it would send could pass for what was
sent. So it writes nothing and says so, and the driver begins the batch anew, with another epoch. Spark does not tell a
task that its whole stage is run again; therefore a task asks the brokers whether anybody has written to its partitions
in this epoch before it does.

What stands in the way is told in a row, not raised: the driver needs to know what it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from barnabas.client.admin import Admin
from barnabas.client.partitioners import partitions_for_keys
from barnabas.client.producer_many import binary_values
from barnabas.client.transaction_requests import SharedTransaction
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition
from barnabas.spark.sink import PRODUCERS_MAX, forget_producer, send_all, worker_producer
from barnabas.spark.sink_columns import KEY, PARTITION, TOPIC, SinkColumns
from barnabas.spark.topic_offsets import admin_settings

OUTCOME_SCHEMA: Final = "records bigint, code int, message string, is_rerun boolean"

_admins: dict[tuple[tuple[str, str], ...], Admin] = {}


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
            # A row that names no topic is told of where it is to be written.
            return 1
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = worker_producer(self._producer).partitions_for(topic)
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
                pa.array([records], pa.int64()),
                pa.array([code], pa.int32()),
                pa.array([message]),
                pa.array([is_rerun]),
            ],
            names=["records", "code", "message", "is_rerun"],
        )

    def _write(self, batches: Iterator[pa.RecordBatch]) -> int:
        first = next(batches, None)
        if first is None:
            return 0
        producer = worker_producer(self._producer)
        producer.join_transaction(self._shared)
        records = send_all(producer, self._columns, self._checked(first, batches))
        producer.leave_transaction()
        return records

    def _checked(self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; before those of a partition that is new here, it is looked for who has written there."""
        seen: set[TopicPartition] = set()
        batch: pa.RecordBatch | None = first
        while batch is not None:
            new = {TopicPartition(*pair) for pair in self._targets(batch)} - seen
            if new:
                self._refuse_written(new)
                seen |= new
            yield batch
            batch = next(others, None)

    def _targets(self, batch: pa.RecordBatch) -> list[tuple[str, int]]:
        if TOPIC not in self._columns.names:
            assert self._columns.topic is not None
            return [(self._columns.topic, number) for number in batch.column(PARTITION).unique().to_pylist()]
        pairs = (
            pa.Table.from_batches([batch.select([TOPIC, PARTITION])])
            .group_by([TOPIC, PARTITION])
            .aggregate([])
        )
        named = zip(pairs.column(TOPIC).to_pylist(), pairs.column(PARTITION).to_pylist(), strict=True)
        return [(topic, number) for topic, number in named if topic is not None]

    def _refuse_written(self, partitions: set[TopicPartition]) -> None:
        producers = worker_admin(self._producer).describe_producers(sorted(partitions))
        for partition, states in producers.items():
            for state in states:
                if (
                    state.producer_id == self._shared.producer_id
                    and state.producer_epoch == self._shared.producer_epoch
                    and state.last_sequence >= 0
                ):
                    raise TaskRunAgain(f"an earlier run of a task has written to {partition}")


def _refuse_later_attempts() -> None:
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        raise TaskRunAgain(f"task {context.partitionId()} was run {context.attemptNumber() + 1} times")


def worker_admin(producer: Mapping[str, str]) -> Admin:
    """The admin client of this Python worker; it stays for the next task."""
    settings = admin_settings(producer)
    known = tuple(sorted(settings.items()))
    admin = _admins.get(known)
    if admin is None:
        while len(_admins) >= PRODUCERS_MAX:
            _admins.pop(next(iter(_admins))).close()
        admin = _admins[known] = Admin(settings)
    return admin
