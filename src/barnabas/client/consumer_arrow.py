"""Records as an Arrow record batch, made of whole buffers and not of records.

    key            binary
    value          binary
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp[ms, UTC]
    timestampType  int8 (0 of the producer, 1 of the broker, -1 of messages without)
    headers        list<struct<key: string, value: binary>>

The names are those of Spark's Kafka source. pyarrow is needed here and nowhere else, and imported at the first use.
"""

from __future__ import annotations

from struct import pack
from typing import TYPE_CHECKING, Any

from barnabas.client.consumer_intake import ColumnRun
from barnabas.client.consumer_record import repeated_offsets
from barnabas.errors import InvalidConfig
from barnabas.model import TopicPartition
from barnabas.records.columns import BinaryColumn

if TYPE_CHECKING:
    import pyarrow as pa


def import_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise InvalidConfig(
            "poll_arrow() needs pyarrow, which is not installed: pip install 'barnabas[arrow]'"
        ) from None
    return pyarrow


def arrow_schema() -> pa.Schema:
    pa = import_pyarrow()
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string(), nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
            pa.field("timestampType", pa.int8(), nullable=False),
            pa.field("headers", _headers_type(pa), nullable=False),
        ]
    )


def _headers_type(pa: Any) -> Any:
    return pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))


def to_record_batch(run: ColumnRun | None) -> pa.RecordBatch:
    """The record batch of some columns; an empty one of none."""
    pa = import_pyarrow()
    schema = arrow_schema()
    if run is None:
        return pa.RecordBatch.from_pylist([], schema=schema)
    columns = run.columns
    count = columns.record_count

    def fixed(kind: Any, data: bytes) -> Any:
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)], null_count=0)

    def binary(kind: Any, column: BinaryColumn, length: int) -> Any:
        validity = None if column.validity is None else pa.py_buffer(column.validity)
        return pa.Array.from_buffers(
            kind,
            length,
            [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
            null_count=column.null_count,
        )

    header_count = len(columns.header_names.offsets) // 4 - 1
    headers_type = _headers_type(pa)
    pairs = pa.StructArray.from_arrays(
        [
            binary(pa.string(), columns.header_names, header_count),
            binary(pa.binary(), columns.header_values, header_count),
        ],
        fields=list(headers_type.value_type),
    )
    headers = pa.Array.from_buffers(
        headers_type, count, [None, pa.py_buffer(columns.header_offsets)], null_count=0, children=[pairs]
    )
    return pa.RecordBatch.from_arrays(
        [
            binary(pa.binary(), columns.keys, count),
            binary(pa.binary(), columns.values, count),
            binary(pa.string(), topic_column(run.runs), count),
            fixed(pa.int32(), partition_column(run.runs)),
            fixed(pa.int64(), columns.offsets),
            fixed(pa.timestamp("ms", tz="UTC"), columns.timestamps),
            fixed(pa.int8(), columns.timestamp_types),
            headers,
        ],
        schema=schema,
    )


def partition_column(runs: list[tuple[TopicPartition, int]]) -> bytes:
    return b"".join([pack("<i", partition.partition) * count for partition, count in runs])


def topic_column(runs: list[tuple[TopicPartition, int]]) -> BinaryColumn:
    names = [(partition.topic.encode(), count) for partition, count in runs]
    data = b"".join([name * count for name, count in names])
    return BinaryColumn(repeated_offsets([(len(name), count) for name, count in names]), data, None, 0)
