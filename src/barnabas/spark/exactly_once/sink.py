"""Batches of a query to topics, exactly once: one Kafka transaction per batch.

    sink = TransactionalTopicSink(
        {"kafka.bootstrap.servers": "localhost:9092"},
        transactional_id="orders-by-minute",
        group="orders-by-minute",
        topic="minutes",
        checkpoint="/data/checkpoints/orders-by-minute",
    )
    frame.writeStream.foreachBatch(sink).option("checkpointLocation", "/data/checkpoints/orders-by-minute").start()

For each batch the driver

1. initialises the transactional id: this aborts an open transaction of another driver, and fences that driver;
2. reads the marker (`exactly_once/marker.py`), which no other driver can change now. If the batch is committed, the
   driver computes its rows and drops them, so that Spark still updates the state of aggregations and joins;
3. begins a transaction, to which the tasks write (`exactly_once/tasks.py`);
4. commits the end offsets of the batch, with the next marker, and ends the transaction.

The first two steps have this order because otherwise a driver that was presumed dead could commit the batch after the
marker was read.

A fenced driver stops: another driver has taken over, or the transaction has exceeded its time-out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic, sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.client.admin.admin import Admin
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.records import OffsetToCommit, SharedTransaction
from barnabas.errors import (
    GroupIdNotFound,
    InvalidConfig,
    InvalidProducerEpoch,
    KafkaError,
    ProducerFenced,
    TransactionAbortable,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.spark.exactly_once.marker import (
    Marker,
    Plan,
    is_batch_in,
    last_marker,
    next_marker,
    parse_plan,
)
from barnabas.spark.exactly_once.tasks import OUTCOME_SCHEMA, Assigner, TransactionWriter
from barnabas.spark.failures import LOST
from barnabas.spark.session import query_id_of
from barnabas.spark.storage import read_text
from barnabas.spark.topics.offsets import admin_settings, render
from barnabas.spark.topics.sink_columns import KEY, PARTITION, TOPIC, SinkColumns, sink_columns
from barnabas.spark.topics.sink_options import producer_settings
from barnabas.spark.workers import require_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

# How often a batch is begun before a loss of workers, or of brokers, is taken for more than bad luck.
ATTEMPTS_MAX: Final = 3
# As long as brokers allow by default (transaction.max.timeout.ms) is too long to be kept waiting by a driver that died.
TRANSACTION_TIMEOUT_MS: Final = 600_000
BOOKS_TIMEOUT_S: Final = 60.0
BOOKS_POLL_S: Final = 0.005
TASK_COLUMN: Final = "__task"
MARKER_PARTITION: Final = 0


class BatchLost(Exception):
    """A batch was not written for a reason that may not apply to another attempt."""


class TransactionalTopicSink:
    """Writes the batches of one query, which must be the only user of the transactional id and the group.

    `kafka_options` are producer settings, with or without the prefix `kafka.`. Rows go to `topic`, or to the topic in
    their column `topic`; all rows of a batch are in one transaction. `checkpoint` is the query's checkpointLocation.

    The sink commits the position of a query that reads topics to the group. If the topics are in another cluster, set
    `commits_source_offsets` to False. With `take_over` the first batch is written regardless of an existing marker.
    """

    def __init__(
        self,
        kafka_options: Mapping[str, str],
        *,
        transactional_id: str,
        group: str,
        checkpoint: str,
        topic: str | None = None,
        transaction_timeout_ms: int | None = None,
        commits_source_offsets: bool = True,
        take_over: bool = False,
    ) -> None:
        settings = producer_settings(kafka_options)
        for name, value in (
            ("transactional_id", transactional_id),
            ("group", group),
            ("checkpoint", checkpoint),
        ):
            if not value:
                raise InvalidConfig(f"{name} is empty: a sink that writes exactly once needs one of its own")
        if transaction_timeout_ms is not None:
            settings["transaction.timeout.ms"] = str(transaction_timeout_ms)
        settings.setdefault("transaction.timeout.ms", str(TRANSACTION_TIMEOUT_MS))
        self._transaction_timeout_ms = int(settings["transaction.timeout.ms"])
        self._settings = {**settings, "transactional.id": transactional_id}
        self._transactional_id = transactional_id
        self._group = group
        self._topic = topic
        self._checkpoint = checkpoint.rstrip("/")
        self._commits_source_offsets = commits_source_offsets
        self._take_over = take_over
        self._producer: Producer | None = None
        self._admin: Admin | None = None
        self._known_topics: set[str] = set()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """For `foreachBatch`."""
        self.write_batch(frame, batch_id, query_id_of(frame))

    def write_batch(self, frame: DataFrame, batch_id: int, query_id: str) -> None:
        """Writes the rows to their topics once, however often it is called for a batch of a query."""
        columns = sink_columns(frame.schema, self._topic, is_topic_for_all=False)
        _refuse_speculation(frame.sparkSession)
        plan = self._read_plan(frame.sparkSession, batch_id)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            self._take_transactional_id()
            last = self._last_marker()
            if is_batch_in(
                last, query_id, batch_id, plan.checksum, group=self._group, take_over=self._take_over
            ):
                log.info("batch %d of query %s is in; only its state is computed", batch_id, query_id)
                frame.write.format("noop").mode("overwrite").save()
                return
            marker = next_marker(last, query_id, batch_id, plan.checksum)
            try:
                self._write(frame, columns, batch_id, self._offsets(plan, marker))
            except BatchLost as error:
                if attempt == ATTEMPTS_MAX:
                    raise TransactionAbortable(
                        f"batch {batch_id} was begun {ATTEMPTS_MAX} times and could not be written: {error}"
                    ) from error
                log.warning("batch %d is aborted and starts again: %s", batch_id, error)
            else:
                self._take_over = False
                return

    def close(self) -> None:
        """Ends the connections; an open transaction is aborted."""
        producer, admin = self._producer, self._admin
        self._producer = self._admin = None
        if producer is not None:
            producer.close()
        if admin is not None:
            admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def committed_offsets(self) -> dict[TopicPartition, int]:
        """The position of the query in its topics: earlier records are committed, later ones are not."""
        return committed_offsets(self._settings, self._group)

    def _read_plan(self, spark: SparkSession, batch_id: int) -> Plan:
        path = f"{self._checkpoint}/offsets/{batch_id}"
        text = read_text(spark, path)
        if text is None:
            raise InvalidConfig(
                f"there is no {path}: give the sink the query's own checkpointLocation as its checkpoint"
            )
        return parse_plan(text)

    def _take_transactional_id(self) -> None:
        if self._producer is None:
            self._producer = Producer(self._settings)
        try:
            self._producer.init_transactions()
        except (ProducerFenced, InvalidProducerEpoch) as error:
            raise self._fenced(error, None) from error

    def _last_marker(self) -> Marker | None:
        offsets = self._its_admin().list_group_offsets(self._group, require_stable=True)
        return last_marker(committed.metadata for committed in offsets.values())

    def _its_admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(admin_settings(self._settings))
        return self._admin

    def _offsets(self, plan: Plan, marker: Marker) -> dict[TopicPartition, OffsetToCommit]:
        """The offsets to commit with the batch: the end of its input, or a partition of the sink as a place for the
        marker.
        """
        metadata = marker.to_metadata()
        found: dict[TopicPartition, OffsetToCommit] = {}
        if self._commits_source_offsets and plan.offsets is not None:
            if not {partition.topic for partition in plan.offsets} <= self._known_topics:
                self._known_topics = {topic.name for topic in self._its_admin().list_topics()}
            found = {
                partition: OffsetToCommit(offset, metadata)
                for partition, offset in plan.offsets.items()
                if partition.topic in self._known_topics
            }
        if found:
            return found
        if self._topic is None:
            raise InvalidConfig(
                f"the query reads no topics of {self._settings['bootstrap.servers']}, so the sink needs a topic of its"
                " own to note in its group which batches are in: set topic"
            )
        return {TopicPartition(self._topic, MARKER_PARTITION): OffsetToCommit(marker.batch_id, metadata)}

    def _write(
        self,
        frame: DataFrame,
        columns: SinkColumns,
        batch_id: int,
        offsets: Mapping[TopicPartition, OffsetToCommit],
    ) -> None:
        producer = self._producer
        assert producer is not None
        producer.begin_transaction()
        began_s = monotonic()
        try:
            self._run_tasks(frame, columns, batch_id, producer.share_transaction())
            producer.send_offsets_to_transaction(offsets, self._group)
            producer.commit_transaction()
        except (ProducerFenced, InvalidProducerEpoch) as error:
            self._forget_producer()
            raise self._fenced(error, began_s) from error
        except KafkaError as error:
            self._abort(began_s)
            if error.retriable:
                raise BatchLost(f"{error.name}: {error}") from error
            raise
        except BaseException:
            self._abort(began_s)
            raise

    def _abort(self, began_s: float) -> None:
        producer = self._producer
        assert producer is not None
        try:
            producer.abort_transaction()
        except (ProducerFenced, InvalidProducerEpoch) as error:
            self._forget_producer()
            raise self._fenced(error, began_s) from error
        except KafkaError as error:
            # The next producer of the transactional id ends it: this one need not be asked again.
            log.warning("the transaction could not be aborted: %s", error)
            self._forget_producer()

    def _forget_producer(self) -> None:
        producer = self._producer
        self._producer = None
        if producer is not None:
            producer.close(timeout_ms=0)

    def _fenced(self, error: KafkaError, began_s: float | None) -> ProducerFenced:
        took_ms = 0 if began_s is None else round((monotonic() - began_s) * 1000)
        if took_ms >= self._transaction_timeout_ms:
            return ProducerFenced(
                f"the batch took {took_ms} ms, and its transaction was aborted after transaction.timeout.ms ="
                f" {self._transaction_timeout_ms} (or another driver has taken over): raise transaction_timeout_ms, up"
                f" to the brokers' transaction.max.timeout.ms, or make batches smaller (maxOffsetsPerTrigger), and"
                f" start the query again"
            )
        return ProducerFenced(
            f"another driver uses transactional id {self._transactional_id!r} now, and this one has to stop; if there"
            f" should be both, give each an id and a group of its own ({error.name})"
        )

    def _run_tasks(
        self, frame: DataFrame, columns: SinkColumns, batch_id: int, shared: SharedTransaction
    ) -> None:
        require_workers(frame.sparkSession)
        rows = self._distributed(frame, columns, batch_id)
        with_partition = SinkColumns(
            names=(*(name for name in columns.names if name != PARTITION), PARTITION), topic=columns.topic
        )
        writer = self._writer(with_partition, shared)
        try:
            outcomes = rows.select(*with_partition.names).mapInArrow(writer.run, OUTCOME_SCHEMA).collect()
        except Exception as error:
            if LOST.search(str(error)):
                raise BatchLost("a worker was lost") from error
            raise
        for outcome in outcomes:
            if outcome.is_rerun:
                raise BatchLost(outcome.message)
            if outcome.code:
                raise error_for_code(outcome.code, outcome.message)
        for stage in {outcome.stage for outcome in outcomes}:
            _refuse_run_again(frame.sparkSession, stage)

    def _writer(self, columns: SinkColumns, shared: SharedTransaction) -> TransactionWriter:
        return TransactionWriter(self._settings, columns, shared)

    def _distributed(self, frame: DataFrame, columns: SinkColumns, batch_id: int) -> DataFrame:
        """The rows with their partitions, those of one partition of a topic in one task."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.pandas.functions import arrow_udf

        frame = frame.select(*columns.names)
        producer = self._producer
        assert producer is not None
        counts = {}
        if columns.topic is not None:
            counts[columns.topic] = producer.partitions_for(columns.topic, creates=True)
        parallelism = frame.sparkSession.sparkContext.defaultParallelism
        if not {KEY, PARTITION, TOPIC} & set(columns.names):
            assert columns.topic is not None
            count = counts[columns.topic]
            if count < parallelism:
                frame = frame.repartitionById(count, F.pmod(F.spark_partition_id(), F.lit(count)))
            else:
                frame = frame.coalesce(count)
            # One of the partitions each task, another one in the next batch.
            return frame.withColumn(
                PARTITION, F.pmod(F.spark_partition_id() + F.lit(batch_id % count), F.lit(count))
            )
        if columns.by_row and columns.topic is not None:
            frame = frame.withColumn(TOPIC, F.coalesce(F.col(TOPIC), F.lit(columns.topic)))
        assigner = Assigner(self._settings, columns, counts, batch_id)
        made: Any = arrow_udf
        frame = frame.withColumn(PARTITION, made(assigner.assign, "int")(F.struct(*assigner.arguments)))
        target = F.hash(TOPIC, PARTITION) if columns.by_row else F.col(PARTITION)
        tasks = parallelism if columns.by_row else min(parallelism, next(iter(counts.values())))
        return frame.withColumn(TASK_COLUMN, F.pmod(target, F.lit(tasks))).repartitionById(tasks, TASK_COLUMN)


def committed_offsets(kafka_options: Mapping[str, str], group: str) -> dict[TopicPartition, int]:
    """The offsets of a group, of the partitions that a query has read."""
    with Admin(admin_settings(kafka_options)) as admin:
        found = admin.list_group_offsets(group, require_stable=True)
    return {partition: committed.offset for partition, committed in found.items()}


def starting_offsets(kafka_options: Mapping[str, str], group: str) -> str:
    """The option startingOffsets for a query with a new checkpoint that continues at the position of a group."""
    return render(committed_offsets(kafka_options, group))


def reset(kafka_options: Mapping[str, str], *, transactional_id: str, group: str) -> None:
    """Ends a transaction that was left open, and forgets which batches are in and where the query stood."""
    with Admin(admin_settings(kafka_options)) as admin:
        admin.fence_producers([transactional_id])
        try:
            admin.delete_groups(group)
        except GroupIdNotFound:
            return


def _refuse_speculation(spark: SparkSession) -> None:
    if str(spark.sparkContext.getConf().get("spark.speculation", "false")).lower() == "true":
        raise InvalidConfig(
            "spark.speculation=true may run a task twice, and a transaction takes what it writes once: switch it off"
        )


def _refuse_run_again(spark: SparkSession, stage: int) -> None:
    """Raises BatchLost if Spark has run the stage again because an executor was lost: its rows may then be mixed.

    Spark updates its status in the background, in order: it is complete when it has the tasks of the stage.
    """
    tracker = spark.sparkContext.statusTracker()
    deadline_s = monotonic() + BOOKS_TIMEOUT_S
    while monotonic() < deadline_s:
        found = tracker.getStageInfo(stage)
        if found is not None and found.numCompletedTasks >= found.numTasks:
            if found.currentAttemptId > 0:
                raise BatchLost(f"stage {stage} was run again")
            return
        sleep(BOOKS_POLL_S)
    raise BatchLost(f"Spark does not tell whether stage {stage} was run again")
