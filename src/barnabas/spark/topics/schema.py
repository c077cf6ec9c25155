"""The columns of Spark's kafka format, which the source has too.

    key            binary
    value          binary
    topic          string
    partition      int
    offset         bigint
    timestamp      timestamp (null where the milliseconds do not fit into Spark's microseconds)
    timestampType  int (0 of the producer, 1 of the broker, -1 of messages without)
    headers        array<struct<key: string, value: binary>>, null where there are none

All are nullable, as in Spark's format. If a query declares some of them as its schema, the source creates only those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.errors import InvalidConfig

HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMN_TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}
HEADERS: Final = "headers"


def spark_schema(*, include_headers: bool) -> StructType:
    return StructType(
        [StructField(name, kind) for name, kind in COLUMN_TYPES.items() if include_headers or name != HEADERS]
    )


def check_schema(schema: StructType) -> None:
    """Raises InvalidConfig for a schema with other columns than a topic has, or of other types."""
    for field in schema.fields:
        kind = COLUMN_TYPES.get(field.name)
        if kind is None:
            raise InvalidConfig(
                f"schema: a topic has no column {field.name!r}; it has {', '.join(COLUMN_TYPES)}:"
                " leave the schema out, and decode key and value by functions of Spark"
            )
        if field.dataType != kind or not field.nullable:
            raise InvalidConfig(
                f"schema: column {field.name!r} of a topic is {kind.simpleString()}, nullable, and not"
                f" {field.dataType.simpleString()}{'' if field.nullable else ' not null'}: leave the schema out, and"
                " cast by functions of Spark"
            )
