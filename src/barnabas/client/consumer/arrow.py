"""Records as an Arrow record batch, created from whole buffers and not from single records.

    key            binary
    value          binary
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp[ms, UTC]
    timestampType  int8 (0 of the producer, 1 of the broker, -1 of messages without)
    headers        list<struct<key: string, value: binary>>

The names are those of Spark's Kafka source. Only this module of the client needs pyarrow, so it is imported at the
first use.
"""

from __future__ import annotations

from struct import pack
from typing import Final

from barnabas.client.consumer.intake import ColumnRun
from barnabas.client.consumer.record import repeated_offsets
from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.records.columns import NONE_NULL, BinaryColumn

try:
    import pyarrow as pa
except ImportError:
    raise InvalidConfig(
        "poll_arrow() needs pyarrow, which is not installed: pip install 'barnabas[arrow]'"
    ) from None

from barnabas.records.arrow import binary_array, fixed_array, headers_array, key_array, value_array

TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")
HEADERS: Final = pa.list_(
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
)
SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP, nullable=False),
        pa.field("timestampType", pa.int8(), nullable=False),
        pa.field("headers", HEADERS, nullable=False),
    ]
)


def to_record_batch(run: ColumnRun | None) -> pa.RecordBatch:
    """The record batch of some columns; an empty one of none."""
    if run is None:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    columns = run.columns
    count = columns.record_count
    return pa.RecordBatch.from_arrays(
        [
            key_array(columns),
            value_array(columns),
            binary_array(pa.string(), topic_column(run.runs)),
            fixed_array(pa.int32(), count, partition_column(run.runs)),
            fixed_array(pa.int64(), count, columns.offsets),
            fixed_array(TIMESTAMP, count, columns.timestamps),
            fixed_array(pa.int8(), count, columns.timestamp_types),
            headers_array(HEADERS, columns),
        ],
        schema=SCHEMA,
    )


def partition_column(runs: list[tuple[TopicPartition, int]]) -> bytes:
    return b"".join([pack("<i", partition.partition) * count for partition, count in runs])


def topic_column(runs: list[tuple[TopicPartition, int]]) -> BinaryColumn:
    names = [(partition.topic.encode(), count) for partition, count in runs]
    data = b"".join([name * count for name, count in names])
    return BinaryColumn(repeated_offsets([(len(name), count) for name, count in names]), data, NONE_NULL)
