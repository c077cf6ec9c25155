"""What a task does: reads a range of offsets, as record batches for Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.model import Offset
from barnabas.records.arrow import place_of
from barnabas.records.columns import ColumnsBuilder
from barnabas.spark.topics.arrow import MICROSECONDS, RowMaker
from barnabas.spark.topics.fetch import fetch_range
from barnabas.spark.topics.options import TopicOptions
from barnabas.spark.topics.plan import Bounds, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from barnabas.client.reader.partition_reader import Fetched

# Columns are passed on at this size; a fetch may hold many times that in compressed records.
COLUMNS_BYTES: Final = 4 * 1024 * 1024


def read_range(options: TopicOptions, schema: StructType, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range as record batches of bounded size."""
    maker = RowMaker(schema)
    for fetched in fetch_range(
        options.kafka,
        wanted,
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
    ):
        yield from _rows(maker, fetched, wanted)


def _rows(maker: RowMaker, fetched: Fetched, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    place = place_of(fetched.data) if isinstance(fetched.data, memoryview) else None
    if place is not None:
        fetched.read_in_place(*place)
    data = fetched.as_bytes()
    position = fetched.state.position
    assert position is not None

    builder = ColumnsBuilder(with_headers=maker.with_headers)
    while (header := fetched.next_batch(position)) is not None:
        if header.base_offset >= wanted.end_offset:
            break
        builder.append_batch(data, fetched.batch_position, header=header, start_offset=Offset(position))
        # Uncompressed data stays where it is, and is gathered at once.
        if builder.size_bytes >= fetched.size_bytes + COLUMNS_BYTES:
            yield from maker.batches(builder.finish(), wanted.partition, end_offset=wanted.end_offset)
            builder = ColumnsBuilder(with_headers=maker.with_headers)
    yield from maker.batches(builder.finish(), wanted.partition, end_offset=wanted.end_offset)


def between_times(batch: pa.RecordBatch, bounds: Bounds) -> pa.RecordBatch:
    """The rows with a timestamp within the bounds, in microseconds."""
    if batch.num_rows == 0:
        return batch
    times = batch.column("timestamp")
    low, high = pa.scalar(bounds.low, MICROSECONDS), pa.scalar(bounds.high, MICROSECONDS)
    return batch.filter(pc.and_(pc.greater_equal(times, low), pc.less_equal(times, high)))
