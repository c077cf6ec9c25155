"""Topics copied from one cluster to another, batch by batch of a query.

    sink = MirrorSink(
        {"kafka.bootstrap.servers": "here:9092"},
        {"kafka.bootstrap.servers": "there:9092"},
        checkpoint="/data/checkpoints/mirror",
        rename="here.{topic}",
        groups="orders-.*",
    )
    frame.writeStream.foreachBatch(sink).option("checkpointLocation", "/data/checkpoints/mirror").start()

Records keep their partitions and their order, keys, values, headers and timestamps. Topics that are missing on the
other side are made, with the partitions and the settings that they have here; partitions that are missing are added.

A batch is one transaction of `TransactionalTopicSink`: its records, its lines of the offset map (`mirror_offsets`, in
topic `<name>.offset-map`) and the note that it is in. After a batch, groups of consumers that are chosen by `groups`
get their offsets over there, translated by that map, as long as they have no members there.

Nobody else may write to the topics of the mirror: their offsets would not be those that the map tells.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from barnabas.client.admin import Admin
from barnabas.client.admin_core import AdminErrors
from barnabas.client.admin_results import (
    BROKER_DEFAULT,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourceType,
)
from barnabas.client.consumer import Consumer
from barnabas.client.producer import Producer
from barnabas.client.transaction_requests import SharedTransaction
from barnabas.errors import (
    GroupIdNotFound,
    InvalidConfig,
    KafkaError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.model import TopicPartition
from barnabas.spark.exactly_once import QUERY_ID_PROPERTY, TransactionalTopicSink
from barnabas.spark.mirror_offsets import Copied, OffsetMap, parse_copied
from barnabas.spark.sink import TopicSink
from barnabas.spark.sink_columns import SinkColumns
from barnabas.spark.sink_options import producer_settings
from barnabas.spark.topic_offsets import Offsets, admin_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
TASK_COLUMN: Final = "__task"
GROUP_SYNC_INTERVAL_MS: Final = 10_000
MAP_TIMEOUT_S: Final = 300.0
OFFSET_MAP_CONFIGS: Final[Mapping[str, str]] = {"cleanup.policy": "compact"}
# Settings that a topic has for its own cluster: who leads, what is throttled, and by which clock it is stamped.
OWN_SETTINGS: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)


class MirrorSink:
    """Writes the batches of one query that reads topics, with headers, of `source_options` to `target_options`.

    `rename` tells the name over there by `{topic}`. `groups` is a regular expression that the names of groups match as
    a whole. The transactional id, the group that notes batches and the offset map bear the `name`.
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
        self._group_sync_due_s = 0.0
        self._partition_counts: dict[str, int] = {}
        self._source_admin: Admin | None = None
        self._target_admin: Admin | None = None
        self._map: OffsetMap | None = None
        self._sink: Final = _BatchSink(
            self,
            self._target,
            transactional_id=name,
            group=name,
            checkpoint=checkpoint,
            topic=self.offset_map_topic,
            transaction_timeout_ms=transaction_timeout_ms,
            commits_source_offsets=False,
            take_over=take_over,
        )
        self._plain: Final = None if exactly_once else TopicSink(target_options)

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
        query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
        if not query_id:
            raise InvalidConfig(
                "a mirror is for foreachBatch of a streaming query: Spark tells no query id here"
            )
        self.write_batch(frame, batch_id, query_id)

    def write_batch(self, frame: DataFrame, batch_id: int, query_id: str) -> None:
        """Has the records of a batch on the other side, once, and groups follow."""
        from pyspark.sql import functions as F  # noqa: N812

        missing = [name for name in COLUMNS if name not in frame.columns]
        if missing:
            raise InvalidConfig(
                f"a mirror needs the rows of a topic as they are, and they have no {', '.join(missing)}: read them with"
                " includeHeaders=true, and transform nothing"
            )
        ends = self._sink.planned_offsets(frame, batch_id)
        self._make_topics(ends)
        starts = self._sink.planned_offsets(frame, batch_id - 1) if batch_id > 0 else {}
        renamed = frame.select(
            *COLUMNS[:2],
            F.concat(F.lit(self._before), F.col("topic"), F.lit(self._after)).alias("topic"),
            *COLUMNS[3:],
        )
        batch = MirroredBatch(self, batch_id, starts, ends)
        if self._plain is None:
            self._sink.batch = batch
            self._sink.write_batch(renamed, batch_id, query_id)
        else:
            batch.begin()
            self._plain.write_batch(in_order(renamed, self._tasks(frame)), batch_id, query_id)
            with Producer(self._target) as producer:
                batch.end(producer)
        if self._groups is not None:
            offset_map = self.known_offsets()
            for each in batch.copied:
                offset_map.add(each)
            self._sync_groups(self._groups, offset_map)

    def close(self) -> None:
        self._sink.close()
        for admin in (self._source_admin, self._target_admin):
            if admin is not None:
                admin.close()
        self._source_admin = self._target_admin = None

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

    def _tasks(self, frame: DataFrame) -> int:
        parallelism = frame.sparkSession.sparkContext.defaultParallelism
        return max(min(parallelism, sum(self._partition_counts.values())), 1)

    def _at_source(self) -> Admin:
        if self._source_admin is None:
            self._source_admin = Admin(self._source)
        return self._source_admin

    def _at_target(self) -> Admin:
        if self._target_admin is None:
            self._target_admin = Admin(admin_settings(self._target))
        return self._target_admin

    def _make_topics(self, ends: Offsets) -> None:
        """Topics and partitions that have come up since the last batch."""
        if not self._partition_counts:
            self._create(NewTopic(name=self.offset_map_topic, partitions=1, configs=OFFSET_MAP_CONFIGS))
        new = {
            partition.topic
            for partition in ends
            if partition.partition >= self._partition_counts.get(partition.topic, 0)
        }
        if not new:
            return
        described = self._at_source().describe_topics(sorted(new))
        for topic, description in described.items():
            count = len(description.partitions)
            target = self.target_topic(topic)
            try:
                there = len(self._at_target().describe_topics(target)[target].partitions)
            except UnknownTopicOrPartition:
                there = 0
            if there == 0:
                self._create(NewTopic(name=target, partitions=count, configs=self._settings_of(topic)))
            elif there < count:
                self._at_target().create_partitions({target: count})
            self._partition_counts[topic] = count

    def _create(self, topic: NewTopic) -> None:
        made = NewTopic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=self._replication_factor,
            configs=topic.configs,
        )
        with contextlib.suppress(TopicAlreadyExists):
            self._at_target().create_topics([made])

    def _settings_of(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._at_source().describe_configs(resource)[resource]
        return {
            name: entry.value
            for name, entry in entries.items()
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and name not in OWN_SETTINGS
        }

    def known_offsets(self) -> OffsetMap:
        """The map, read once; what is written to it from then on is added.

        It is read when the transactional id is taken, and so all that was written before is decided.
        """
        if self._map is None:
            self._map = load_offset_map(self._target, self.offset_map_topic)
        return self._map

    def _sync_groups(self, chosen: re.Pattern[str], offset_map: OffsetMap) -> None:
        if time.monotonic() < self._group_sync_due_s:
            return
        for listing in self._at_source().list_groups():
            if chosen.fullmatch(listing.group_id) and listing.group_id != self._name:
                try:
                    self._sync_group(offset_map, listing.group_id)
                except (KafkaError, AdminErrors) as error:
                    # It has members over there, or its coordinator is on its way: the next time will do.
                    log.warning("offsets of group %s are not mirrored now: %s", listing.group_id, error)
        self._group_sync_due_s = time.monotonic() + self._group_sync_interval_ms / 1000

    def _sync_group(self, offset_map: OffsetMap, group: str) -> None:
        here = self._at_source().list_group_offsets(group)
        found = [offset_map.translate(partition, committed.offset) for partition, committed in here.items()]
        translated = dict(each for each in found if each is not None)
        if not translated:
            return
        try:
            there = self._at_target().list_group_offsets(group, list(translated))
        except GroupIdNotFound:
            there = {}
        ahead = {
            partition: offset
            for partition, offset in translated.items()
            if partition not in there or there[partition].offset < offset
        }
        if ahead:
            self._at_target().alter_group_offsets(group, ahead)


class MirroredBatch:
    """What a batch copies: from where to where it goes is noted before and after its records are written."""

    def __init__(self, mirror: MirrorSink, batch_id: int, starts: Offsets, ends: Offsets) -> None:
        self._mirror = mirror
        self._batch_id = batch_id
        self._starts = starts
        self._ends = {partition: end for partition, end in ends.items() if end > starts.get(partition, 0)}
        self._target_starts: Offsets = {}
        self.copied: list[Copied] = []

    def begin(self) -> None:
        if self._mirror.mirrors_groups:
            self._mirror.known_offsets()
        self._target_starts = self._mirror.target_ends(self._ends)

    def end(self, producer: Producer) -> None:
        """Hands the lines of the map to the producer, whose transaction it may be."""
        target_ends = self._mirror.target_ends(self._ends)
        self.copied = []
        for source, source_end in self._ends.items():
            copied = Copied(
                source=source,
                target_topic=self._mirror.target_topic(source.topic),
                batch_id=self._batch_id,
                source_start=self._starts.get(source, 0),
                source_end=source_end,
                target_start=self._target_starts[source],
                target_end=target_ends[source],
            )
            if copied.target_end - copied.target_start > source_end - copied.source_start:
                log.warning(
                    "%s got more records than the mirror wrote: somebody else writes there, and offsets are not mapped",
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


class _BatchSink(TransactionalTopicSink):
    """Rows of a partition are written in their order, and the map in the same transaction."""

    batch: MirroredBatch

    def __init__(
        self,
        mirror: MirrorSink,
        kafka_options: Mapping[str, str],
        *,
        transactional_id: str,
        group: str,
        checkpoint: str,
        topic: str,
        transaction_timeout_ms: int | None,
        commits_source_offsets: bool,
        take_over: bool,
    ) -> None:
        super().__init__(
            kafka_options,
            transactional_id=transactional_id,
            group=group,
            checkpoint=checkpoint,
            topic=topic,
            transaction_timeout_ms=transaction_timeout_ms,
            commits_source_offsets=commits_source_offsets,
            take_over=take_over,
        )
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
        return in_order(frame, self._mirror._tasks(frame))


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
