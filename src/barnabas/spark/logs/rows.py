"""Rows of a piece of a log file, as Arrow record batches created from whole buffers.

A row is a record, with the columns of a topic, or (mode=batches) a batch with the fields of its header. Both may have
the file and the position of the batch, and an error if there is no batch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.errors import InvalidConfig, KafkaError
from barnabas.log.reader.transactions import AbortedBatches
from barnabas.model import Offset
from barnabas.records.columns import ColumnsBuilder
from barnabas.records.header import BatchHeader
from barnabas.records.layout import COMPRESSION_MASK, CompressionType
from barnabas.spark.logs.options import LogOptions, Mode, OnCorruption
from barnabas.spark.logs.plan import Piece
from barnabas.spark.logs.walk import CHUNK_BYTES, Corruption, Found, walk_range
from barnabas.spark.topics.arrow import INT64_MAX, MICROSECONDS, RowMaker
from barnabas.spark.topics.plan import Restriction
from barnabas.spark.topics.schema import COLUMN_TYPES, HEADERS

PLACE_TYPES: Final[Mapping[str, DataType]] = {"file": StringType(), "position": LongType()}
ERROR_TYPES: Final[Mapping[str, DataType]] = {"error": StringType()}
BATCH_TYPES: Final[Mapping[str, DataType]] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "baseOffset": LongType(),
    "lastOffset": LongType(),
    "recordCount": IntegerType(),
    "sizeBytes": IntegerType(),
    "magic": ShortType(),
    "compression": StringType(),
    "timestampType": IntegerType(),
    "maxTimestamp": TimestampType(),
    "leaderEpoch": IntegerType(),
    "producerId": LongType(),
    "producerEpoch": ShortType(),
    "baseSequence": IntegerType(),
    "isTransactional": BooleanType(),
    "isControl": BooleanType(),
    "crcOk": BooleanType(),
    **PLACE_TYPES,
    **ERROR_TYPES,
}
# The size of the rows that go to Spark at once: those of a chunk of a file, or this much of compressed batches. More is
# not faster, and leaves the processor's cache.
COLUMNS_BYTES: Final = 2 * CHUNK_BYTES
BATCH_ROWS: Final = 4_096


def column_types(options: LogOptions) -> Mapping[str, DataType]:
    """The columns that a query with these options may ask for."""
    if options.mode is Mode.BATCHES:
        return BATCH_TYPES
    with_error = options.on_corruption is OnCorruption.ROWS
    return {
        **{name: kind for name, kind in COLUMN_TYPES.items() if options.include_headers or name != HEADERS},
        **(PLACE_TYPES if options.include_file or with_error else {}),
        **(ERROR_TYPES if with_error else {}),
    }


def spark_schema(options: LogOptions) -> StructType:
    return StructType([StructField(name, kind) for name, kind in column_types(options).items()])


def check_schema(options: LogOptions, schema: StructType) -> None:
    """A query may declare some of the columns as its schema, and so have only those made."""
    known = column_types(options)
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            raise InvalidConfig(
                f"schema: with these options there is no column {field.name!r}; there are {', '.join(known)}"
            )
        if field.dataType != kind or not field.nullable:
            raise InvalidConfig(
                f"schema: column {field.name!r} is {kind.simpleString()}, nullable, and not"
                f" {field.dataType.simpleString()}{'' if field.nullable else ' not null'}"
            )


class RecordRows:
    """Makes rows of the records of pieces."""

    def __init__(self, options: LogOptions, schema: StructType, restriction: Restriction) -> None:
        self._on_corruption = options.on_corruption
        self._bounds = restriction.timestamp_us
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._has_time = "timestamp" in schema.names
        of_topic = [field for field in schema.fields if field.name in COLUMN_TYPES]
        if not self._bounds.is_open and not self._has_time:
            of_topic.append(StructField("timestamp", TimestampType()))
        if not of_topic:
            of_topic.append(StructField("offset", LongType()))
        self._maker = RowMaker(StructType(of_topic))
        self._with_headers = HEADERS in schema.names
        self._with_position = "position" in schema.names
        self._is_plain = [field.name for field in of_topic] == schema.names and self._bounds.is_open

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        aborted = AbortedBatches(piece.aborted)
        gathered: list[Found] = []
        builder = self._builder()
        start_offset = Offset(piece.start_offset)
        for item in walk_range(piece):
            if isinstance(item, Corruption):
                yield from self._rows(piece, builder, gathered)
                builder, gathered = self._builder(), []
                yield from self._corrupt(piece, item)
                continue
            header = item.header
            if (
                header.last_offset < start_offset
                or header.is_control
                or header.max_timestamp < piece.first_timestamp_ms
                or aborted.has(header)
            ):
                continue
            if gathered and gathered[-1].data is not item.data and not header.is_compressed:
                # Records of one chunk are gathered from there, without a copy.
                yield from self._rows(piece, builder, gathered)
                builder, gathered = self._builder(), []
            try:
                builder.append_batch(
                    item.data, item.position_in_data, header=header, start_offset=start_offset
                )
            except KafkaError as error:
                yield from self._rows(piece, builder, gathered)
                builder, gathered = self._builder(), []
                what = f"the records of the batch at offset {header.base_offset} cannot be read: {error}"
                yield from self._corrupt(
                    piece, Corruption(item.position, item.position + header.size_bytes, what, header)
                )
                continue
            gathered.append(item)
            if builder.size_bytes >= COLUMNS_BYTES:
                yield from self._rows(piece, builder, gathered)
                builder, gathered = self._builder(), []
        yield from self._rows(piece, builder, gathered)

    def _builder(self) -> ColumnsBuilder:
        return ColumnsBuilder(with_headers=self._with_headers)

    def _rows(self, piece: Piece, builder: ColumnsBuilder, gathered: list[Found]) -> Iterator[pa.RecordBatch]:
        columns = builder.finish()
        made = self._maker.batches(columns, piece.partition, end_offset=piece.end_offset)
        if self._is_plain:
            yield from made
            return
        start = 0
        positions = _positions(columns.offsets, gathered) if self._with_position else None
        for batch in made:
            arrays = {name: batch.column(name) for name in batch.schema.names}
            arrays["file"] = pa.repeat(pa.scalar(piece.segment.path, pa.string()), batch.num_rows)
            arrays["error"] = pa.nulls(batch.num_rows, pa.string())
            if positions is not None:
                arrays["position"] = positions.slice(start, batch.num_rows)
            start += batch.num_rows
            whole = pa.RecordBatch.from_arrays(
                [arrays[name] for name in self._schema.names], schema=self._schema
            )
            wanted = self._of_time(whole, arrays)
            if wanted.num_rows:
                yield wanted

    def _of_time(self, batch: pa.RecordBatch, arrays: Mapping[str, pa.Array]) -> pa.RecordBatch:
        bounds = self._bounds
        if bounds.is_open:
            return batch
        times = arrays["timestamp"]
        low, high = pa.scalar(bounds.low, MICROSECONDS), pa.scalar(bounds.high, MICROSECONDS)
        return batch.filter(pc.and_(pc.greater_equal(times, low), pc.less_equal(times, high)))

    def _corrupt(self, piece: Piece, corruption: Corruption) -> Iterator[pa.RecordBatch]:
        if self._on_corruption is OnCorruption.FAIL:
            raise corruption.error(piece.segment.path)
        if self._on_corruption is OnCorruption.ROWS:
            yield _row(self._schema, _told(piece, corruption))


class BatchRows:
    """Makes rows of the headers of pieces."""

    def __init__(self, options: LogOptions, schema: StructType) -> None:
        self._on_corruption = options.on_corruption
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        aborted = AbortedBatches(piece.aborted)
        rows: list[dict[str, Any]] = []
        for item in walk_range(piece):
            header = item.header
            if header is None:
                # There is no batch here, so the only row reports this.
                assert isinstance(item, Corruption)
                if self._on_corruption is OnCorruption.FAIL:
                    raise item.error(piece.segment.path)
                if self._on_corruption is OnCorruption.ROWS:
                    rows.append(_told(piece, item))
                continue
            # A batch is where its base offset is, so that no two reads that follow one another both have it.
            if header.base_offset < piece.start_offset or aborted.has(header):
                continue
            rows.append(_batch_row(piece, header, item))
            if len(rows) >= BATCH_ROWS:
                yield pa.RecordBatch.from_pylist(rows, schema=self._schema)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=self._schema)


def _positions(offsets: bytes, gathered: list[Found]) -> pa.Array:
    """The position of each record's batch: offsets ascend, and a batch has those up to its last."""
    counts = memoryview(offsets).cast("q")
    positions = array("q")
    start = 0
    for item in gathered:
        end = bisect_right(counts, item.header.last_offset, start)
        positions.extend(array("q", [item.position]) * (end - start))
        start = end
    return pa.Array.from_buffers(pa.int64(), len(positions), [None, pa.py_buffer(positions)])


def _told(piece: Piece, corruption: Corruption) -> dict[str, Any]:
    return {
        "topic": piece.partition.topic,
        "partition": piece.partition.partition,
        "file": piece.segment.path,
        "position": corruption.position,
        "error": f"{corruption.what}; reading goes on at position {corruption.next_position}",
    }


def _row(schema: pa.Schema, values: Mapping[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{name: values.get(name) for name in schema.names}], schema=schema)


def _batch_row(piece: Piece, header: BatchHeader, item: Found | Corruption) -> dict[str, Any]:
    return {
        "topic": piece.partition.topic,
        "partition": piece.partition.partition,
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "recordCount": None if header.record_count < 0 else header.record_count,
        "sizeBytes": header.size_bytes,
        "magic": header.magic,
        "compression": _compression_label(header),
        "timestampType": int(header.timestamp_type),
        "maxTimestamp": _microseconds(header.max_timestamp),
        "leaderEpoch": header.partition_leader_epoch,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "crcOk": isinstance(item, Found),
        "file": piece.segment.path,
        "position": item.position,
        "error": item.what if isinstance(item, Corruption) else None,
    }


def _compression_label(header: BatchHeader) -> str:
    number = header.attributes & COMPRESSION_MASK
    return CompressionType(number).label if number in set(CompressionType) else str(number)


def _microseconds(time_ms: int) -> int | None:
    """As Spark counts; None where 64 bits do not hold it."""
    return time_ms * 1_000 if abs(time_ms) <= INT64_MAX // 1_000 else None
