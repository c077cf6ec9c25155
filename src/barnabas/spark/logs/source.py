"""The data source `barnabas-log`: log directories, Barnabas' own or Apache Kafka's, read without a broker.

The directories must be there, under the same path, for the driver, which plans, and for the workers, which read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)

from barnabas.log.reader.partition_files import SegmentGone
from barnabas.spark.logs.options import LogOptions, Mode, OnCorruption, check_stream, parse_options
from barnabas.spark.logs.plan import SEGMENT_GONE_REMEDY, Piece, plan
from barnabas.spark.logs.rows import BatchRows, RecordRows, check_schema, spark_schema
from barnabas.spark.pushdown import takes_filters
from barnabas.spark.topics.plan import Restriction

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Task(InputPartition):
    pieces: tuple[Piece, ...]


class LogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "barnabas-log"

    def schema(self) -> StructType:
        return spark_schema(parse_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        check_schema(options, schema)
        kind = FilteringLogReader if options.push_filters and takes_filters() else LogReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from barnabas.spark.logs.stream import LogStreamReader

        options = parse_options(self.options)
        check_stream(options)
        check_schema(options, schema)
        return LogStreamReader(options, schema)


class LogReader(DataSourceReader):
    """Reads what the files had when the query was planned."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._restriction = Restriction()

    def partitions(self) -> Sequence[InputPartition]:
        return [Task(pieces) for pieces in plan(self._options, self._restriction)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Task):
            # If there is nothing to read, PySpark makes up a partition of its own.
            return
        yield from read_pieces(self._options, self._schema, self._restriction, partition.pieces)


class FilteringLogReader(LogReader):
    """The same, with a query's filters on topic, partition, offset and timestamp."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        left = [each for each in filters if not self._restriction.push(each)]
        # A row that reports corruption has no offset; rows of batches have other columns.
        is_exact = self._options.mode is Mode.RECORDS and self._options.on_corruption is not OnCorruption.ROWS
        return left if is_exact else filters


def read_pieces(
    options: LogOptions, schema: StructType, restriction: Restriction, pieces: Iterable[Piece]
) -> Iterator[pa.RecordBatch]:
    rows: RecordRows | BatchRows
    if options.mode is Mode.BATCHES:
        rows = BatchRows(options, schema)
    else:
        rows = RecordRows(options, schema, restriction)
    for piece in pieces:
        try:
            yield from rows.read(piece)
        except SegmentGone as error:
            if options.fail_on_data_loss:
                raise SegmentGone(f"{error}{SEGMENT_GONE_REMEDY}") from None
