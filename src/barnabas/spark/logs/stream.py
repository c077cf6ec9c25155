"""Log directories as a stream: a trigger reads up to the end of the logs, or less; the checkpoint stores the offsets.

A broker may be writing at the same time. New topics and partitions are read from their start as they appear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barnabas.log.reader.partition_files import PartitionFiles, log_end_offset
from barnabas.log.reader.transactions import TransactionReader, Transactions
from barnabas.spark.logs.options import Isolation, LogOptions
from barnabas.spark.logs.plan import Range, find_chosen, resolve, split, transaction_reader
from barnabas.spark.logs.source import Task, read_pieces
from barnabas.spark.topics.directory import report_data_loss
from barnabas.spark.topics.offsets import Nested, Offsets, nest, parse
from barnabas.spark.topics.plan import Restriction, bound

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.model import TopicPartition


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as the query; tasks get a copy that has not read anything."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._followed: dict[TopicPartition, TransactionReader] = {}
        self._latest: Offsets = {}
        self._is_available_now = False
        self._available_now: Offsets | None = None

    def initialOffset(self) -> Nested:
        return nest(
            {
                files.partition: min(
                    max(resolve(files, self._options.starting), files.log_start_offset), log_end_offset(files)
                )
                for files in find_chosen(self._options)
            }
        )

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Nested:
        starts = parse(start)
        for partition, reader in self._followed.items():
            reader.forget_before(starts.get(partition, 0))
        ends = self._available_now
        if ends is None:
            ends = {files.partition: self._end_of(files) for files in find_chosen(self._options)}
            # A transaction that is open again after a crash takes nothing back that was read.
            ends = {partition: max(end, starts.get(partition, 0)) for partition, end in ends.items()}
            if self._is_available_now:
                self._available_now = ends
        self._latest = ends
        maximum = self._options.max_offsets_per_trigger
        if isinstance(limit, ReadAllAvailable) or maximum is None:
            return nest(ends)
        return nest(bound(maximum, {partition: starts.get(partition, 0) for partition in ends}, ends))

    def _end_of(self, files: PartitionFiles) -> int:
        transactions = self._transactions(files)
        if transactions is not None and transactions.last_stable_offset is not None:
            return transactions.last_stable_offset
        return log_end_offset(files)

    def _transactions(self, files: PartitionFiles) -> Transactions | None:
        if self._options.isolation is Isolation.READ_UNCOMMITTED:
            return None
        reader = self._followed.get(files.partition)
        if reader is None:
            reader = self._followed[files.partition] = transaction_reader(self._options)
        return reader.read(files)

    def reportLatestOffset(self) -> Nested | None:
        return nest(self._latest) if self._latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        starts, ends = parse(start), parse(end)
        found = {files.partition: files for files in find_chosen(self._options)}
        ranges: list[Range] = []
        for partition, end_offset in ends.items():
            start_offset = starts.get(partition, 0)
            if start_offset >= end_offset:
                continue
            files = found.get(partition)
            if files is None:
                self._report(f"{partition} can no longer be read: its directory does not exist")
                continue
            if partition in starts and start_offset < files.log_start_offset:
                last_expired = min(files.log_start_offset, end_offset) - 1
                self._report(
                    f"offsets {start_offset} to {last_expired} of {partition} have expired; its log begins at"
                    f" {files.log_start_offset}"
                )
            first_offset = max(start_offset, files.log_start_offset)
            if first_offset < end_offset:
                ranges.append(Range(files, first_offset, end_offset, self._transactions(files)))
        return [Task(pieces) for pieces in split(self._options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read_pieces(self._options, self._schema, Restriction(), partition.pieces)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: the checkpoint is the only record of progress."""

    def _report(self, message: str) -> None:
        report_data_loss(message, fail_on_data_loss=self._options.fail_on_data_loss)
