"""Topics as a stream: a trigger reads up to the offsets that are found, or fewer, and the checkpoint keeps them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.client.admin.errors import AdminErrors
from barnabas.clock import Clock, SystemClock
from barnabas.errors import KafkaError
from barnabas.spark.topics.directory import TopicDirectory, named, report_data_loss
from barnabas.spark.topics.offsets import LATEST, Nested, Offsets, nest, parse
from barnabas.spark.topics.options import Position, TopicOptions
from barnabas.spark.topics.plan import OffsetRange, bound, split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.model import TopicPartition

log = logging.getLogger(__name__)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as the query; tasks get a copy that has not sent any request.

    One task reads a partition of a topic, whatever its size, unless the options say otherwise: so a query sees the
    records of a partition in order.
    """

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._directory = TopicDirectory(options)
        self._clock: Clock = SystemClock()
        self._topic_ids: dict[str, str] = {}
        # How far partitions were read whose topics were created again since; they are now read as new ones.
        self._outlived: Offsets = {}
        self._initial: Offsets | None = None
        self._has_looked = False
        self._latest: Offsets = {}
        self._is_available_now = False
        self._available_now: Offsets | None = None
        self._committed: Offsets = {}
        self._last_trigger_ns: int | None = None

    def initialOffset(self) -> Nested:
        # Spark asks for it again when it plans the first batch, and the answer must be the same.
        if self._initial is None:
            partitions = self._directory.partitions()
            self._note_topics(partitions)
            self._initial = self._directory.resolve(self._starting, partitions)
        return nest(self._initial)

    @property
    def _starting(self) -> Position:
        return self._options.starting or Position(option="startingOffsets", everywhere=LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Nested:
        starts = parse(start)
        # All earlier records have been processed: Spark asks for more only then. The last batch of a query that ends by
        # itself is reported in no other way.
        self._commit(starts)
        self._has_looked = True
        if self._available_now is not None:
            ends = self._available_now
        else:
            ends = self._find_latest(starts)
            if self._is_available_now:
                self._available_now = ends
        self._latest = ends
        if isinstance(limit, ReadAllAvailable):
            return nest(ends)
        starts = self._valid(starts)
        starts |= self._new_starts(starts, ends)
        if not self._is_available_now and self._is_to_wait(starts, ends):
            return start
        maximum = self._options.max_offsets_per_trigger
        return nest(ends if maximum is None else bound(maximum, starts, ends))

    def _find_latest(self, starts: Offsets) -> Offsets:
        partitions = self._directory.partitions(may_be_missing=True)
        recreated = self._note_topics(partitions)
        if recreated:
            self._report(
                f"topics were deleted and created again while they were read: {', '.join(recreated)}"
            )
        self._outlived = {
            each: offset for each, offset in self._outlived.items() if starts.get(each) == offset
        }
        self._outlived |= {each: offset for each, offset in starts.items() if each.topic in recreated}
        ends = self._directory.latest(partitions, self._valid(starts))
        gone = starts.keys() - ends.keys()
        if gone:
            self._report(f"{named(gone)} cannot be read any more: their topics were deleted")
        return ends

    def _valid(self, starts: Offsets) -> Offsets:
        return {each: offset for each, offset in starts.items() if self._outlived.get(each) != offset}

    def _note_topics(self, partitions: Mapping[TopicPartition, str | None]) -> list[str]:
        """Remembers the topics' ids; returns those whose id has changed."""
        found = {each.topic: topic_id for each, topic_id in partitions.items() if topic_id is not None}
        changed = [
            topic for topic, topic_id in found.items() if self._topic_ids.get(topic, topic_id) != topic_id
        ]
        self._topic_ids |= found
        return sorted(changed)

    def _new_starts(self, starts: Offsets, ends: Offsets) -> Offsets:
        new = ends.keys() - starts.keys()
        return self._directory.earliest(new) if new else {}

    def _is_to_wait(self, starts: Offsets, ends: Offsets) -> bool:
        minimum = self._options.min_offsets_per_trigger
        if minimum is None:
            return False
        now_ns = self._clock.monotonic_ns()
        last_ns = self._last_trigger_ns
        is_due = last_ns is None or now_ns - last_ns >= self._options.max_trigger_delay_ms * 1_000_000
        waiting = sum(max(end - starts.get(each, end), 0) for each, end in ends.items())
        if not is_due and waiting < minimum:
            return True
        self._last_trigger_ns = now_ns
        return False

    def reportLatestOffset(self) -> Nested | None:
        return nest(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        starts, ends = self._valid(parse(start)), parse(end)
        if not self._has_looked and starts == self._initial:
            starts |= self._starts_of_first_batch(ends)
        ranges = [each for each in self._ranges(starts, ends) if each.size > 0]
        return split(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )

    def _starts_of_first_batch(self, ends: Offsets) -> Offsets:
        """The start of a first batch that is repeated after a restart: the latest offsets of that time, not of now.

        Spark stores only the end of a batch. The group, if there is one, got the start before that.
        """
        each = self._starting.each
        moved = {
            partition
            for partition in ends
            if (self._starting.everywhere if each is None else each.get(partition)) == LATEST
        }
        if self._starting.is_time or not moved:
            return {}
        group = self._options.group
        told = {} if group is None else self._directory.committed(group)
        if all(partition in told and told[partition] <= ends[partition] for partition in moved):
            return {partition: told[partition] for partition in moved}
        report_data_loss(
            f"the first batch of the query was begun and not finished, and began at what were the latest offsets of"
            f" {named(moved)} then",
            fail_on_data_loss=self._options.fail_on_data_loss,
            remedy="With a kafka.group.id the beginning is known; without, name the offsets by startingOffsets as JSON,"
            " or begin with a new checkpoint",
        )
        return {partition: ends[partition] for partition in moved}

    def _ranges(self, starts: Offsets, ends: Offsets) -> list[OffsetRange]:
        changed = [each for each, end in ends.items() if starts.get(each) != end]
        if not changed:
            return []
        firsts = self._directory.earliest(changed)
        missing = set(changed) - firsts.keys()
        if missing:
            self._report(f"{named(missing)} cannot be read any more: their topics were deleted")
        ranges = []
        for partition in sorted(firsts):
            first, end = firsts[partition], ends[partition]
            start = starts.get(partition)
            if start is None:
                if first > 0:
                    self._report(
                        f"{partition} is new and begins at offset {first}: those before have expired"
                    )
                start = first
            elif start > end:
                self._report(
                    f"{partition} was read up to offset {start} and ends at {end} now: its topic was created again, or"
                    " its log was truncated"
                )
            elif start < first:
                self._report(
                    f"offsets {start} to {min(first, end) - 1} of {partition} have expired; its log begins at {first}"
                )
            start = min(max(start, first), end)
            ranges.append(OffsetRange(partition, start, end, self._topic_ids.get(partition.topic)))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from barnabas.spark.topics.reading import read_range

        assert isinstance(partition, OffsetRange)
        return read_range(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(parse(end))

    def _commit(self, offsets: Offsets) -> None:
        group = self._options.group
        if group is None or offsets == self._committed:
            return
        try:
            self._directory.commit(group, offsets)
        except (KafkaError, AdminErrors) as error:
            # The checkpoint is authoritative; the group is for tools.
            log.warning("progress was not committed to kafka.group.id=%s: %s", group, error)
        else:
            self._committed = offsets

    def stop(self) -> None:
        self._directory.close()

    def _report(self, message: str) -> None:
        report_data_loss(message, fail_on_data_loss=self._options.fail_on_data_loss)
