"""Records as rows of Spark, created from whole buffers and not from single records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.records.arrow import (
    fixed_array,
    headers_array,
    key_array,
    repeated_number,
    repeated_text,
    value_array,
)
from barnabas.records.columns import RecordColumns
from barnabas.spark.topics.schema import HEADERS
from barnabas.spark.worker_memory import settle_in

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from barnabas.model import TopicPartition

# Spark takes a batch as a whole; a batch of compressed records may be many times the fetched size.
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
MICROSECONDS_IN_MILLISECOND: Final = 1_000
ARROW_HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
INT64_MAX: Final = 2**63 - 1


class RowMaker:
    """Makes record batches of one schema."""

    def __init__(self, schema: StructType) -> None:
        settle_in()
        self._schema: Final = to_arrow_schema(schema, timezone="UTC")
        # Constant columns are created once, at the largest size so far, for one partition at a time.
        self.with_headers: Final = HEADERS in schema.names
        self._repeated: dict[str, pa.Array] = {}
        self._repeated_for: TopicPartition | None = None

    def batches(
        self,
        columns: RecordColumns,
        partition: TopicPartition,
        *,
        end_offset: int = INT64_MAX,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> Iterator[pa.RecordBatch]:
        """The records before the end offset, of which offsets ascend, in as many batches as their size needs."""
        count = columns.record_count
        if count == 0:
            return
        offsets = memoryview(columns.offsets).cast("q")
        if offsets[-1] >= end_offset:
            count = bisect_left(offsets, end_offset)
        if count == 0:
            return
        arrays = [
            self._repeat(name, partition, columns.record_count)
            if name in _CONSTANTS
            else _MAKERS[name](columns)
            for name in self._schema.names
        ]
        whole = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        size_bytes = whole.nbytes
        rows = columns.record_count
        rows_max = rows if size_bytes <= batch_bytes_max else max(rows * batch_bytes_max // size_bytes, 1)
        if count <= rows_max:
            yield whole if count == rows else whole.slice(0, count)
            return
        for start in range(0, count, rows_max):
            yield whole.slice(start, min(rows_max, count - start))

    def _repeat(self, name: str, partition: TopicPartition, count: int) -> pa.Array:
        if self._repeated_for != partition:
            self._repeated = {}
            self._repeated_for = partition
        known = self._repeated.get(name)
        if known is None or len(known) < count:
            known = self._repeated[name] = (
                repeated_text(partition.topic, count)
                if name == "topic"
                else repeated_number(partition.partition, count)
            )
        return known.slice(0, count)


def _offset(columns: RecordColumns) -> pa.Array:
    return fixed_array(pa.int64(), columns.record_count, columns.offsets)


def _timestamp(columns: RecordColumns) -> pa.Array:
    milliseconds = fixed_array(MILLISECONDS, columns.record_count, columns.timestamps)
    try:
        return milliseconds.cast(MICROSECONDS)
    except pa.ArrowInvalid:
        limit = pa.scalar(INT64_MAX // MICROSECONDS_IN_MILLISECOND, pa.int64())
        numbers = milliseconds.cast(pa.int64())
        fits = pc.and_(pc.less_equal(numbers, limit), pc.greater_equal(numbers, pc.negate(limit)))
        return pc.if_else(fits, milliseconds, pa.scalar(None, MILLISECONDS)).cast(MICROSECONDS)


def _timestamp_type(columns: RecordColumns) -> pa.Array:
    return fixed_array(pa.int8(), columns.record_count, columns.timestamp_types).cast(pa.int32())


def _headers(columns: RecordColumns) -> pa.Array:
    lists = headers_array(ARROW_HEADERS, columns)
    # A list of booleans has the layout of a column's validity.
    present = pc.greater(pc.list_value_length(lists), 0)
    return pa.Array.from_buffers(
        ARROW_HEADERS, len(lists), [present.buffers()[1], lists.buffers()[1]], children=[lists.values]
    )


_CONSTANTS: Final = frozenset({"topic", "partition"})
_MAKERS: Final[Mapping[str, Callable[[RecordColumns], pa.Array]]] = {
    "key": key_array,
    "value": value_array,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}
