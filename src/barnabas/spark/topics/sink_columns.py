"""The columns of rows that go to topics, as in Spark's kafka format, and their form for a producer.

    value      string or binary          required; null is a tombstone
    key        string or binary          chooses the partition as Kafka's Java clients do; null: any
    topic      string                    required if the sink has no topic
    partition  int                       null: by the key
    headers    array<struct<key:string,value:binary>>
    timestamp  timestamp                 null: the time of the write

Columns with other names are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import InvalidConfig, InvalidTopicException

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

VALUE: Final = "value"
KEY: Final = "key"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
HEADERS: Final = "headers"
TIMESTAMP: Final = "timestamp"

BYTES_TYPES: Final = ("string", "binary")
# As Spark writes its types down. Whether a field may be null does not matter.
ALLOWED_TYPES: Final = {
    VALUE: BYTES_TYPES,
    KEY: BYTES_TYPES,
    TOPIC: ("string",),
    PARTITION: ("int",),
    HEADERS: ("array<struct<key:string,value:binary>>",),
    TIMESTAMP: ("timestamp",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """Which columns the rows have, and the topic that all of them go to, or those that name none."""

    names: tuple[str, ...]
    topic: str | None

    @property
    def by_row(self) -> bool:
        """Whether rows name their topics."""
        return TOPIC in self.names


def sink_columns(schema: StructType, topic: str | None, *, is_topic_for_all: bool) -> SinkColumns:
    """Checks the columns of a query before any task starts; InvalidConfig names the column, its type and the remedy."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if VALUE not in types:
        raise InvalidConfig(
            f"a row for a topic needs a column 'value' of type string or binary, and the columns here are"
            f" {', '.join(types) or 'none'}: name one so, such as selectExpr('to_json(struct(*)) AS value')"
        )
    for name, allowed in ALLOWED_TYPES.items():
        found = types.get(name)
        if found is not None and not found.startswith(allowed):
            raise InvalidConfig(
                f"column {name!r} of a row for a topic is of type {' or '.join(allowed)}, and not {found}: cast it"
            )
    if topic is None and TOPIC not in types:
        raise InvalidConfig(
            "no topic to write to: set the option 'topic', or give the rows a column 'topic' of type string"
        )
    names = tuple(name for name in ALLOWED_TYPES if name in types)
    if is_topic_for_all and topic is not None:
        names = tuple(name for name in names if name != TOPIC)
    return SinkColumns(names=names, topic=topic)


def for_producer(batch: pa.RecordBatch, columns: SinkColumns) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by their topic, with the columns that `Producer.send_many` takes."""
    import pyarrow as pa

    if batch.num_rows == 0:
        return
    arrays: dict[str, Any] = {}
    for name in columns.names:
        if name == TIMESTAMP:
            arrays["timestamp_ms"] = _milliseconds(batch.column(TIMESTAMP))
        elif name != TOPIC:
            arrays[name] = batch.column(name)
    records = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    if not columns.by_row:
        assert columns.topic is not None
        yield columns.topic, records
    else:
        yield from _by_topic(records, batch.column(TOPIC), columns.topic)


def _by_topic(records: pa.RecordBatch, topics: pa.Array, otherwise: str | None) -> Iterator[tuple[str, Any]]:
    import pyarrow.compute as pc

    if topics.null_count:
        if otherwise is None:
            raise InvalidTopicException(
                "a row has null in its column 'topic': set the option 'topic' for such rows, or filter them out"
            )
        topics = pc.fill_null(topics, otherwise)
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], records
        return
    for number, name in enumerate(names):
        yield name, records.filter(pc.equal(encoded.indices, number))


def _milliseconds(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
