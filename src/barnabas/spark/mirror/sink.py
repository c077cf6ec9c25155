"""Topics copied from one cluster to another, batch by batch of a query.

    sink = MirrorSink(
        {"kafka.bootstrap.servers": "here:9092"},
        {"kafka.bootstrap.servers": "there:9092"},
        checkpoint="/data/checkpoints/mirror",
        rename="here.{topic}",
        groups="orders-.*",
    )
    frame.writeStream.foreachBatch(sink).option("checkpointLocation", "/data/checkpoints/mirror").start()

Records keep their partitions and their order, keys, values, headers and timestamps. The sink creates missing topics
with the partitions and the settings of the source, and adds missing partitions.

A batch is one transaction of `TransactionalTopicSink`: its records, its lines of the offset map (`mirror/offsets.py`,
in topic `<name>.offset-map`) and the marker of the batch. From the first batch on, the offsets of the groups that
`groups` selects are translated by that map, as long as the groups have no members in the target cluster
(`mirror/groups.py`).

No other producer may write to the topics of the mirror: the map would be wrong.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.results import BROKER_DEFAULT
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.records import SharedTransaction
from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.spark.exactly_once.sink import TransactionalTopicSink
from barnabas.spark.mirror.groups import GroupMirror
from barnabas.spark.mirror.offsets import Copied, OffsetMap, parse_copied
from barnabas.spark.mirror.topics import MirroredTopics
from barnabas.spark.session import query_id_of
from barnabas.spark.topics.offsets import Offsets, admin_settings
from barnabas.spark.topics.sink import TopicSink
from barnabas.spark.topics.sink_columns import SinkColumns
from barnabas.spark.topics.sink_options import producer_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
TASK_COLUMN: Final = "__task"
GROUP_SYNC_INTERVAL_MS: Final = 10_000
MAP_TIMEOUT_S: Final = 300.0
OFFSET_MAP_CONFIGS: Final[Mapping[str, str]] = {"cleanup.policy": "compact"}
# Kafka's value for a record without a timestamp.
NO_TIMESTAMP_MS: Final = -1


class MirrorSink:
    """Writes the batches of one query that reads topics, with headers, from `source_options` to `target_options`.

    `rename` contains `{topic}` and gives the name of the copy. `groups` is a regular expression that matches whole
    names of groups. The transactional id, the group with the markers, and the offset map have the `name`.
    """

    def __init__(
        self,
        source_options: Mapping[str, str],
        target_options: Mapping[str, str],
        *,
        checkpoint: str,
        name: str = "mirror",
        rename: str = "{topic}",
        groups: str | None = None,
        exactly_once: bool = True,
        replication_factor: int = BROKER_DEFAULT,
        transaction_timeout_ms: int | None = None,
        take_over: bool = False,
        group_sync_interval_ms: int = GROUP_SYNC_INTERVAL_MS,
    ) -> None:
        if rename.count("{topic}") != 1:
            raise InvalidConfig(
                f"rename={rename!r} is not allowed; it takes a name with {{topic}} in it, once"
            )
        if rename == "{topic}" and _brokers(source_options) == _brokers(target_options):
            raise InvalidConfig(
                f"{_brokers(source_options)} would be mirrored to itself: name another cluster, or rename the topics,"
                ' such as rename="copy.{topic}"'
            )
        if not checkpoint:
            raise InvalidConfig("checkpoint is empty: name the query's checkpointLocation")
        try:
            self._groups: Final = None if groups is None else re.compile(groups)
        except re.error as error:
            raise InvalidConfig(f"groups={groups!r} is no regular expression: {error}") from None
        self._source: Final = admin_settings(source_options)
        self._target: Final = producer_settings(target_options)
        self._name: Final = name
        self._before, self._after = rename.split("{topic}")
        self._replication_factor: Final = replication_factor
        self._group_sync_interval_ms: Final = group_sync_interval_ms
        self._source_admin: Admin | None = None
        self._target_admin: Admin | None = None
        self._topics: MirroredTopics | None = None
        self._map: OffsetMap | None = None
        self._group_mirror: GroupMirror | None = None
        self._sink: Final = self._open_batch_sink(
            transactional_id=name,
            group=name,
            checkpoint=checkpoint,
            topic=self.offset_map_topic,
            transaction_timeout_ms=transaction_timeout_ms,
            commits_source_offsets=False,
            take_over=take_over,
        )
        self._plain: Final = None if exactly_once else TopicSink(target_options)

    def _open_batch_sink(self, **settings: Any) -> BatchSink:
        return BatchSink(self, self._target, **settings)

    @property
    def mirrors_groups(self) -> bool:
        return self._groups is not None

    @property
    def offset_map_topic(self) -> str:
        return f"{self._name}.offset-map"

    def target_topic(self, topic: str) -> str:
        return f"{self._before}{topic}{self._after}"

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """For `foreachBatch`."""
        self.write_batch(frame, batch_id, query_id_of(frame))

    def write_batch(self, frame: DataFrame, batch_id: int, query_id: str) -> None:
        """Writes the records of a batch to the target once, and lets groups follow."""
        from pyspark.sql import functions as F  # noqa: N812

        missing = [name for name in COLUMNS if name not in frame.columns]
        if missing:
            raise InvalidConfig(
                f"a mirror needs the rows of a topic as they are, and they have no {', '.join(missing)}: read them with"
                " includeHeaders=true, and transform nothing"
            )
        ends = self._sink.planned_offsets(frame, batch_id)
        self._its_topics().make(ends)
        starts = self._sink.planned_offsets(frame, batch_id - 1) if batch_id > 0 else {}
        renamed = frame.select(
            *COLUMNS[:2],
            F.concat(F.lit(self._before), F.col("topic"), F.lit(self._after)).alias("topic"),
            *COLUMNS[3:5],
            F.nullif(F.col("timestamp"), F.timestamp_millis(F.lit(NO_TIMESTAMP_MS))).alias("timestamp"),
            *COLUMNS[6:],
        )
        batch = MirroredBatch(self, batch_id, starts, ends)
        if self._plain is None:
            self._sink.batch = batch
            self._sink.write_batch(renamed, batch_id, query_id)
        else:
            batch.begin()
            self._plain.write_batch(in_order(renamed, self.task_count(frame)), batch_id, query_id)
            with Producer(self._target) as producer:
                batch.end(producer)
        if self._groups is not None:
            offset_map = self.known_offsets()
            for each in batch.copied:
                offset_map.add(each)
            if self._group_mirror is None:
                self._group_mirror = GroupMirror(
                    self._source,
                    admin_settings(self._target),
                    offset_map,
                    chosen=self._groups,
                    own_group=self._name,
                )
                self._group_mirror.start(self._group_sync_interval_ms)

    def close(self) -> None:
        self._sink.close()
        if self._group_mirror is not None:
            self._group_mirror.close()
        for admin in (self._source_admin, self._target_admin):
            if admin is not None:
                admin.close()
        self._source_admin = self._target_admin = None
        self._topics = self._group_mirror = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def target_ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The end offsets over there, of partitions here."""
        wanted = {TopicPartition(self.target_topic(each.topic), each.partition): each for each in partitions}
        found = self._at_target().list_offsets(list(wanted)) if wanted else {}
        return {wanted[partition]: listed.offset or 0 for partition, listed in found.items()}

    def task_count(self, frame: DataFrame) -> int:
        parallelism = frame.sparkSession.sparkContext.defaultParallelism
        return max(min(parallelism, self._its_topics().partition_count), 1)

    def _at_source(self) -> Admin:
        if self._source_admin is None:
            self._source_admin = Admin(self._source)
        return self._source_admin

    def _at_target(self) -> Admin:
        if self._target_admin is None:
            self._target_admin = Admin(admin_settings(self._target))
        return self._target_admin

    def _its_topics(self) -> MirroredTopics:
        if self._topics is None:
            self._topics = MirroredTopics(
                self._at_source(),
                self._at_target(),
                target_topic=self.target_topic,
                replication_factor=self._replication_factor,
            )
            self._topics.create(self.offset_map_topic, 1, OFFSET_MAP_CONFIGS)
        return self._topics

    def known_offsets(self) -> OffsetMap:
        """The map, read once; later lines are added as they are written.

        It is read after the transactional id is initialised, so that all earlier transactions are decided.
        """
        if self._map is None:
            self._map = load_offset_map(self._target, self.offset_map_topic)
        return self._map


class MirroredBatch:
    """The ranges that a batch copies: the offsets before and after its records are noted."""

    def __init__(self, mirror: MirrorSink, batch_id: int, starts: Offsets, ends: Offsets) -> None:
        self._mirror = mirror
        self._batch_id = batch_id
        self._starts = starts
        self._ends = {partition: end for partition, end in ends.items() if end != starts.get(partition, 0)}
        self._target_starts: Offsets = {}
        self.copied: list[Copied] = []

    def begin(self) -> None:
        if self._mirror.mirrors_groups:
            self._mirror.known_offsets()
        self._target_starts = self._mirror.target_ends(self._ends)

    def end(self, producer: Producer) -> None:
        """Passes the lines of the map to the producer, within its transaction."""
        target_ends = self._mirror.target_ends(self._ends)
        self.copied = []
        for source, source_end in self._ends.items():
            source_start = self._starts.get(source, 0)
            copied = Copied(
                source=source,
                target_topic=self._mirror.target_topic(source.topic),
                batch_id=self._batch_id,
                # A range that ends before its start belongs to a recreated topic, and is read from its beginning.
                source_start=source_start if source_start < source_end else 0,
                source_end=source_end,
                target_start=self._target_starts[source],
                target_end=target_ends[source],
            )
            if copied.record_count <= 0:
                continue
            if copied.record_count > source_end - copied.source_start:
                log.warning(
                    "%s got more records than the mirror wrote: another producer writes there; offsets are not mapped",
                    copied.target_topic,
                )
                continue
            self.copied.append(copied)
        futures = [
            producer.send(self._mirror.offset_map_topic, value, key, partition=0)
            for copied in self.copied
            for key, value in copied.records()
        ]
        producer.flush()
        for future in futures:
            future.result()


class BatchSink(TransactionalTopicSink):
    """Rows of a partition are written in their order, and the map in the same transaction."""

    batch: MirroredBatch

    def __init__(self, mirror: MirrorSink, kafka_options: Mapping[str, str], **settings: Any) -> None:
        super().__init__(kafka_options, **settings)
        self._mirror = mirror

    def planned_offsets(self, frame: DataFrame, batch_id: int) -> Offsets:
        """Up to where the batch reads, by the query's checkpoint."""
        offsets = self._read_plan(frame.sparkSession, batch_id).offsets
        if offsets is None:
            raise InvalidConfig("a mirror copies topics, and the query reads something else")
        return offsets

    def _run_tasks(
        self, frame: DataFrame, columns: SinkColumns, batch_id: int, shared: SharedTransaction
    ) -> None:
        assert self._producer is not None
        self.batch.begin()
        super()._run_tasks(frame, columns, batch_id, shared)
        self.batch.end(self._producer)

    def _distributed(self, frame: DataFrame, columns: SinkColumns, batch_id: int) -> DataFrame:
        return in_order(frame, self._mirror.task_count(frame))


def in_order(frame: DataFrame, tasks: int) -> DataFrame:
    """The rows of a partition in one task, in the order of their offsets."""
    from pyspark.sql import functions as F  # noqa: N812

    task = F.pmod(F.hash("topic", "partition"), F.lit(tasks))
    return (
        frame.withColumn(TASK_COLUMN, task)
        .repartitionById(tasks, TASK_COLUMN)
        .sortWithinPartitions("topic", "partition", "offset")
    )


def load_offset_map(target_options: Mapping[str, str], topic: str) -> OffsetMap:
    """The map that a mirror has written, as far as it is committed."""
    partition = TopicPartition(topic, 0)
    loaded = OffsetMap()
    settings = {**admin_settings(target_options), "isolation.level": "read_committed"}
    with Consumer(settings) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end_offset = consumer.end_offsets(partition)[partition]
        deadline_s = time.monotonic() + MAP_TIMEOUT_S
        while consumer.position(partition) < end_offset:
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"{topic} could not be read up to offset {end_offset} in {MAP_TIMEOUT_S} s"
                )
            for record in consumer.poll(1000):
                copied = parse_copied(record.key, record.value)
                if copied is not None:
                    loaded.add(copied)
    return loaded


def _brokers(options: Mapping[str, str]) -> str | None:
    return options.get("kafka.bootstrap.servers") or options.get("bootstrap.servers")
