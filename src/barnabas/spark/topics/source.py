"""The data source `barnabas`: topics, read and written with the options of Spark's own kafka format.

For each stream, Spark starts a process that only asks for offsets, and the first batch waits for it. What tasks need to
read records is imported by tasks (`topics/reading.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)

from barnabas.spark.pushdown import takes_filters
from barnabas.spark.topics.directory import TopicDirectory, report_data_loss
from barnabas.spark.topics.offsets import EARLIEST, LATEST
from barnabas.spark.topics.options import Position, TopicOptions, check_batch, check_stream, parse_options
from barnabas.spark.topics.plan import OffsetRange, Restriction, split, split_by_default
from barnabas.spark.topics.schema import check_schema, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class TopicDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        return spark_schema(include_headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        check_batch(options)
        check_schema(schema)
        kind = FilteringTopicReader if options.push_filters and takes_filters() else TopicReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.topics.stream import TopicStreamReader

        options = parse_options(self.options)
        check_stream(options)
        check_schema(schema)
        return TopicStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from barnabas.spark.topics.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from barnabas.spark.topics.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


class TopicReader(DataSourceReader):
    """Reads from one set of offsets to another, both found when the query is planned."""

    def __init__(self, options: TopicOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._restriction = Restriction()

    def partitions(self) -> Sequence[InputPartition]:
        directory = TopicDirectory(self._options)
        try:
            ranges = self._ranges(directory)
        finally:
            directory.close()
        options = self._options
        if options.min_partitions is None and options.max_records_per_partition is None:
            return split_by_default(ranges, cores=os.cpu_count() or 1)
        return split(
            ranges,
            min_partitions=options.min_partitions,
            max_records_per_partition=options.max_records_per_partition,
        )

    def _ranges(self, directory: TopicDirectory) -> list[OffsetRange]:
        options = self._options
        restriction = self._restriction
        topic_ids = directory.partitions()
        starting = options.starting or Position(option="startingOffsets", everywhere=EARLIEST)
        ending = options.ending or Position(option="endingOffsets", everywhere=LATEST)
        starts = directory.resolve(starting, topic_ids)
        ends = directory.resolve(ending, topic_ids)
        wanted = [partition for partition in topic_ids if restriction.allows(partition)]
        firsts = directory.earliest(wanted)
        lasts = directory.latest(wanted)
        ranges = []
        for partition in sorted(firsts.keys() & lasts.keys()):
            start, end = starts[partition], ends[partition]
            if start < firsts[partition] < end:
                report_data_loss(
                    f"{starting.option}: offset {start} of {partition} has expired; its log begins at"
                    f" {firsts[partition]}",
                    fail_on_data_loss=options.fail_on_data_loss,
                )
            if end > lasts[partition]:
                report_data_loss(
                    f"{ending.option}: offset {end} of {partition} does not exist; its log ends at {lasts[partition]}",
                    fail_on_data_loss=options.fail_on_data_loss,
                )
            start, end = max(start, firsts[partition]), min(end, lasts[partition])
            ranges.append(restriction.narrow(OffsetRange(partition, start, end, topic_ids[partition])))
        return self._from_first_time(directory, ranges)

    def _from_first_time(self, directory: TopicDirectory, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Does not read records before the first record of the requested time."""
        first_ms = self._restriction.first_timestamp_ms
        if first_ms is None:
            return ranges
        found = directory.at_time({each.partition: first_ms for each in ranges if each.size > 0})
        narrowed = []
        for each in ranges:
            first = found.get(each.partition)
            start = each.end_offset if first is None else min(max(first, each.start_offset), each.end_offset)
            narrowed.append(each.between(start, each.end_offset))
        return narrowed

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, OffsetRange):
            # If there is nothing to read, PySpark makes up a partition of its own.
            return
        from barnabas.spark.topics.reading import between_times, read_range

        bounds = self._restriction.timestamp_us
        for batch in read_range(self._options, self._schema, partition):
            wanted = batch if bounds.is_open else between_times(batch, bounds)
            if wanted.num_rows > 0:
                yield wanted


class FilteringTopicReader(TopicReader):
    """The same, with a query's filters on topic, partition, offset and timestamp."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return [each for each in filters if not self._restriction.push(each)]
