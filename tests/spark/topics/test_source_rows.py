from __future__ import annotations

import datetime
from collections.abc import Mapping

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from barnabas.errors import InvalidConfig
from barnabas.model import Offset, TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder
from barnabas.records.columns import RecordColumns
from barnabas.spark.topics.arrow import RowMaker
from barnabas.spark.topics.schema import check_schema, spark_schema
from tests.records.columns import decode_columns

PARTITION = TopicPartition("clicks", 3)
FULL = spark_schema(include_headers=True)
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
NOON_MS = int(NOON.timestamp() * 1_000)


def columns_of(*records: Mapping[str, object], base_offset: int = 0, magic: int = 2) -> RecordColumns:
    builder = BatchBuilder(base_offset=Offset(base_offset), magic=magic)
    for record in records:
        builder.append(
            TimestampMs(record.get("timestamp_ms", NOON_MS)),  # type: ignore[arg-type]
            record.get("key"),  # type: ignore[arg-type]
            record.get("value"),  # type: ignore[arg-type]
            record.get("headers", ()),  # type: ignore[arg-type]
        )
    return decode_columns(builder.build())


def test_the_schema_is_that_of_sparks_kafka_format() -> None:
    assert spark_schema(include_headers=False).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert FULL.fields[-1].dataType.simpleString() == "array<struct<key:string,value:binary>>"
    assert all(field.nullable for field in FULL.fields)


def test_rows_have_exactly_the_declared_arrow_schema() -> None:
    columns = columns_of({"value": b"v", "headers": (("h", b"1"), ("n", None))}, {"key": b"k"}, base_offset=7)
    (batch,) = RowMaker(FULL).batches(columns, PARTITION)
    assert batch.schema.equals(to_arrow_schema(FULL, timezone="UTC"))
    batch.validate(full=True)
    common = {"topic": "clicks", "partition": 3, "timestamp": NOON, "timestampType": 0}
    assert batch.to_pylist() == [
        {
            **common,
            "key": None,
            "value": b"v",
            "offset": 7,
            "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
        },
        {**common, "key": b"k", "value": None, "offset": 8, "headers": None},
    ]


def test_a_query_may_ask_for_some_columns() -> None:
    schema = StructType([FULL["offset"], FULL["value"]])
    check_schema(schema)
    (batch,) = RowMaker(schema).batches(columns_of({"value": b"v"}), PARTITION)
    assert batch.to_pylist() == [{"offset": 0, "value": b"v"}]


@pytest.mark.parametrize(
    ("field", "complaint"),
    [
        (StructField("price", StringType()), "a topic has no column 'price'"),
        (StructField("value", StringType()), "column 'value' of a topic is binary, nullable, and not string"),
        (StructField("partition", IntegerType(), nullable=False), "and not int not null"),
    ],
)
def test_another_schema_is_refused(field: StructField, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        check_schema(StructType([field]))


def test_records_at_the_end_offset_and_behind_are_left_out() -> None:
    columns = columns_of(*({"value": b"%d" % number} for number in range(10)), base_offset=100)
    maker = RowMaker(FULL)
    (batch,) = maker.batches(columns, PARTITION, end_offset=104)
    assert batch.column("offset").to_pylist() == [100, 101, 102, 103]
    assert list(maker.batches(columns, PARTITION, end_offset=100)) == []
    assert list(maker.batches(columns_of(), PARTITION)) == []


def test_a_batch_has_a_bounded_size() -> None:
    columns = columns_of(*({"value": bytes(1_000)} for _ in range(10)))
    batches = list(RowMaker(FULL).batches(columns, PARTITION, batch_bytes_max=3_300))
    assert [batch.num_rows for batch in batches] == [3, 3, 3, 1]
    assert all(batch.nbytes <= 3_300 for batch in batches)
    assert pa.Table.from_batches(batches).column("offset").to_pylist() == list(range(10))
    # A record that is larger than the bound is still a row.
    assert len(list(RowMaker(FULL).batches(columns, PARTITION, batch_bytes_max=1))) == 10


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_rows_too(magic: int) -> None:
    (batch,) = RowMaker(FULL).batches(columns_of({"key": b"k", "value": b"v"}, magic=magic), PARTITION)
    (row,) = batch.to_pylist()
    assert (row["key"], row["value"], row["headers"]) == (b"k", b"v", None)
    assert row["timestampType"] == (0 if magic else -1)
    # Spark shows a message without a time in the last millisecond before 1970.
    assert row["timestamp"] == (
        NOON if magic else datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, datetime.UTC)
    )


def test_a_time_that_spark_cannot_hold_is_null() -> None:
    columns = columns_of({"timestamp_ms": 2**62}, {"timestamp_ms": NOON_MS}, {"timestamp_ms": 2**63 // 1_000})
    (batch,) = RowMaker(FULL).batches(columns, PARTITION)
    assert batch.column("timestamp").null_count == 1
    assert batch.column("timestamp")[1].as_py() == NOON
