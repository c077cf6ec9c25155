"""Reading a table or a query of a database as Arrow: its options, its columns as Spark's, the SQL of a range.

| PostgreSQL | Spark |
|---|---|
| smallint, integer, bigint, real, double precision, boolean | smallint, int, bigint, float, double, boolean |
| text, varchar, char, name; bytea | string; binary |
| date, timestamp, timestamptz | date, timestamp_ntz, timestamp |
| numeric(p,s); numeric, or more than 38 digits | decimal(p,s); decimal(38,18), string |
| arrays of all these but numeric | array |
| another type (json, uuid, interval, …) | string, as its text |

In SQLite a value has a type, not a column. The declared type of a column determines the type of its values (INT…
bigint, REAL, FLOA…, DOUB… double, BOOL… boolean, DATE date, TIMESTAMP, DATETIME timestamp in UTC, BLOB binary, others
string), and the first value of an expression determines its type. A schema of the query overrides both.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T  # noqa: N812

from barnabas.errors import InvalidConfig, InvalidRecord
from barnabas.spark.databases.connection import (
    Database,
    TableName,
    connected,
    cursor_of,
    execute,
    identifier,
    literal,
    parse_table,
    parse_url,
    rows_of,
)

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

OPTIONS: Final = (
    "url",
    "table",
    "query",
    "growingColumn",
    "startingValue",
    "maxRowsPerTrigger",
    "partitions",
    "partitionColumn",
    "settleSeconds",
)
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}
PARTITIONS_MAX: Final = 10_000
VIEW: Final = "barnabas_view"

POSTGRESQL_TYPES: Final[Mapping[str, T.DataType]] = {
    "bool": T.BooleanType(),
    "int2": T.ShortType(),
    "int4": T.IntegerType(),
    "int8": T.LongType(),
    "float4": T.FloatType(),
    "float8": T.DoubleType(),
    "text": T.StringType(),
    "varchar": T.StringType(),
    "bpchar": T.StringType(),
    "name": T.StringType(),
    "bytea": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampNTZType(),
    "timestamptz": T.TimestampType(),
}
# A declared type is what it contains first of these, after SQLite's own rules of affinity.
SQLITE_TYPES: Final[tuple[tuple[str, T.DataType], ...]] = (
    ("INT", T.LongType()),
    ("CHAR", T.StringType()),
    ("CLOB", T.StringType()),
    ("TEXT", T.StringType()),
    ("BLOB", T.BinaryType()),
    ("REAL", T.DoubleType()),
    ("FLOA", T.DoubleType()),
    ("DOUB", T.DoubleType()),
    ("BOOL", T.BooleanType()),
    ("DATETIME", T.TimestampType()),
    ("TIMESTAMP", T.TimestampType()),
    ("DATE", T.DateType()),
)
# The type that values are read as, and a value that certainly has this type.
_SQLITE_STORAGE: Final[Mapping[type[T.DataType], tuple[str, str]]] = {
    T.BooleanType: ("INTEGER", "0"),
    T.ByteType: ("INTEGER", "0"),
    T.ShortType: ("INTEGER", "0"),
    T.IntegerType: ("INTEGER", "0"),
    T.LongType: ("INTEGER", "0"),
    T.FloatType: ("REAL", "0.5"),
    T.DoubleType: ("REAL", "0.5"),
    T.BinaryType: ("BLOB", "x'00'"),
}
_SQLITE_TEXT: Final = ("TEXT", "'x'")
GROWING: Final = (
    T.IntegralType,
    T.DecimalType,
    T.StringType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    database: Database
    table: TableName | None
    query: str | None
    growing_column: str | None
    starting_value: str | None
    max_rows_per_trigger: int | None
    partitions: int
    partition_column: str | None
    settle_s: float

    @property
    def relation(self) -> str:
        """The text after FROM."""
        return self.table.quoted if self.table is not None else f"({self.query}\n) AS barnabas_query"


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    given: dict[str, str] = {}
    for name, value in options.items():
        known = _BY_LOWER.get(name.lower())
        if known is None:
            raise InvalidConfig(f"option {name}: there is no such option; there are {', '.join(OPTIONS)}")
        given[known] = value
    if "url" not in given:
        raise InvalidConfig("option url is missing: postgresql://user@host/database or sqlite:///file")
    if ("table" in given) == ("query" in given):
        raise InvalidConfig("give either the option table or the option query")
    growing = given.get("growingColumn")
    if "startingValue" in given and growing is None:
        raise InvalidConfig("option startingValue: it is a value of growingColumn, which is not given")
    partitions = _number(given, "partitions", 1)
    assert partitions is not None
    column = given.get("partitionColumn", growing)
    if partitions > PARTITIONS_MAX:
        raise InvalidConfig(f"option partitions: {partitions} is more than {PARTITIONS_MAX}")
    if partitions > 1 and column is None:
        raise InvalidConfig("option partitions: rows are split by partitionColumn or growingColumn: give one")
    try:
        settle_s = float(given.get("settleSeconds", "0"))
    except ValueError:
        settle_s = -1.0
    if not 0 <= settle_s <= 86_400:
        raise InvalidConfig(f"option settleSeconds: {given['settleSeconds']!r} is not between 0 and 86400")
    return ReadOptions(
        database=parse_url(given["url"]),
        table=parse_table(given["table"]) if "table" in given else None,
        query=given["query"].strip().rstrip(";") if "query" in given else None,
        growing_column=growing,
        starting_value=given.get("startingValue"),
        max_rows_per_trigger=_number(given, "maxRowsPerTrigger", None),
        partitions=partitions,
        partition_column=column,
        settle_s=settle_s,
    )


def _number(given: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = given.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or int(text) < 1:
        raise InvalidConfig(f"option {name}: {text!r} is not a number above 0")
    return int(text)


def describe(connection: Connection, options: ReadOptions) -> T.StructType:
    """The columns of the table or query."""
    if options.database.kind == "sqlite":
        return _describe_sqlite(connection, options)
    with cursor_of(connection) as cursor:
        fields = cursor.adbc_execute_schema(f"SELECT * FROM {options.relation}")
    return T.StructType([T.StructField(field.name, _postgresql_type(field)) for field in fields])


def _postgresql_type(field: pa.Field) -> T.DataType:
    metadata = field.metadata or {}
    name = metadata.get(b"POSTGRESQL:type", b"").decode()
    if name == "numeric":
        return decimal_of(int(metadata.get(b"POSTGRESQL:typmod", b"-1")))
    if name.startswith("_") and name[1:] in POSTGRESQL_TYPES:
        return T.ArrayType(POSTGRESQL_TYPES[name[1:]])
    return POSTGRESQL_TYPES.get(name, T.StringType())


def decimal_of(type_modifier: int) -> T.DataType:
    """Of PostgreSQL: precision and scale as one number, four more than they are; -1 for none."""
    if type_modifier < 0:
        return T.DecimalType(38, 18)
    precision, scale = (type_modifier - 4) >> 16, (type_modifier - 4) & 0x7FF
    if scale >= 0x400 or scale > precision or precision > 38:
        return T.StringType()
    return T.DecimalType(precision, scale)


def _describe_sqlite(connection: Connection, options: ReadOptions) -> T.StructType:
    execute(connection, f"CREATE TEMP VIEW {VIEW} AS SELECT * FROM {options.relation}")
    declared = rows_of(connection, f"SELECT name, type FROM pragma_table_info('{VIEW}')")
    fields = []
    for name, kind in declared:
        found = sqlite_type(kind)
        # BLOB is also the type of a column without a declared type.
        if found is None or isinstance(found, T.BinaryType):
            sample = rows_of(
                connection,
                f"SELECT typeof({identifier(name)}) FROM {VIEW} WHERE {identifier(name)} IS NOT NULL LIMIT 1",
            )
            found = sqlite_type(sample[0][0]) if sample else found
        fields.append(T.StructField(name, found or T.StringType()))
    return T.StructType(fields)


def sqlite_type(declared: str) -> T.DataType | None:
    for part, kind in SQLITE_TYPES:
        if part in declared.upper():
            return kind
    return None


def select_list(columns: T.StructType, found: T.StructType, options: ReadOptions) -> list[str]:
    """For each column that the query wants, the expression that gives it."""
    expressions = []
    for field in columns.fields:
        if field.name not in found.fieldNames():
            raise InvalidConfig(
                f"schema: there is no column {field.name!r}; there are {', '.join(found.fieldNames())}"
            )
        name = identifier(field.name)
        if options.database.kind == "sqlite":
            storage, _ = _SQLITE_STORAGE.get(type(field.dataType), _SQLITE_TEXT)
            # Arrow reads a time with a zone or one without, and ours are in UTC.
            value = f"rtrim({name}, 'Z')" if isinstance(field.dataType, T.TimestampType) else name
            expressions.append(f"CAST({value} AS {storage}) AS {name}")
        elif isinstance(found[field.name].dataType, T.StringType):
            expressions.append(f"{name}::text AS {name}")
        else:
            expressions.append(name)
    return expressions


def require_growing(options: ReadOptions, found: T.StructType) -> T.DataType:
    """The type of the growing column. It must have an order and an exact text form."""
    column = options.growing_column
    if column is None:
        raise InvalidConfig("option growingColumn is missing: a stream reads new rows by a column that grows")
    return _type_of(column, found, "growingColumn", GROWING, "a whole number, a decimal, a time or a text")


def require_splittable(options: ReadOptions, found: T.StructType) -> str:
    column = options.partition_column
    assert column is not None
    _type_of(column, found, "partitionColumn", (T.IntegralType,), "a whole number")
    return column


def _type_of(
    column: str, found: T.StructType, option: str, kinds: tuple[type[T.DataType], ...], what: str
) -> T.DataType:
    if column not in found.fieldNames():
        raise InvalidConfig(
            f"option {option}: there is no column {column!r}; there are {', '.join(found.fieldNames())}"
        )
    kind = found[column].dataType
    if not isinstance(kind, kinds):
        raise InvalidConfig(f"option {option}: column {column!r} is {kind.simpleString()}; it must be {what}")
    return kind


def value_literal(value: str, kind: T.DataType, database: Database) -> str:
    """A value of the growing column in SQL. PostgreSQL takes the text of anything; SQLite compares numbers as such."""
    if isinstance(kind, T.IntegralType):
        if not re.fullmatch(r"[+-]?[0-9]{1,40}", value.strip()):
            raise InvalidConfig(f"{value!r} is not a value of a growing column of whole numbers")
        return str(int(value)) if database.kind == "sqlite" else literal(value.strip())
    return literal(value)


def range_predicate(column: str, after: str | None, up_to: str | None) -> str:
    """After one value and up to another, both as SQL; null is in no range."""
    name = identifier(column)
    parts = [f"{name} > {after}"] if after is not None else []
    if up_to is not None:
        parts.append(f"{name} <= {up_to}")
    return " AND ".join(parts) or f"{name} IS NOT NULL"


def split(low: int, high: int, partitions: int) -> list[tuple[int, int]]:
    """(low, high] in up to this many ranges of one size, each without its low end and with its high end."""
    count = max(1, min(partitions, high - low))
    edges = [low + (high - low) * n // count for n in range(count + 1)]
    return list(itertools.pairwise(edges))


def split_predicates(column: str, low: int, high: int, partitions: int) -> list[str]:
    """Predicates that each row of a table fulfils one of, those outside low to high and those without a value too."""
    name = identifier(column)
    edges = [end for _, end in split(low - 1, high, partitions)][:-1]
    if not edges:
        return [""]
    middle = [f"{name} > {low} AND {name} <= {high}" for low, high in itertools.pairwise(edges)]
    return [f"({name} <= {edges[0]} OR {name} IS NULL)", *middle, f"{name} > {edges[-1]}"]


def read_statement(
    columns: T.StructType, expressions: Sequence[str], options: ReadOptions, predicates: Sequence[str]
) -> str:
    where = " AND ".join(part for part in predicates if part)
    statement = f"SELECT {', '.join(expressions) or '1'} FROM {options.relation}"
    statement += f" WHERE {where}" if where else ""
    if options.database.kind == "postgresql":
        return statement
    # ADBC takes a column's type from its first rows, and cannot go back on it: a row in front has them all.
    sample = [
        f"{_SQLITE_STORAGE.get(type(field.dataType), _SQLITE_TEXT)[1]} AS {identifier(field.name)}"
        for field in columns.fields
    ]
    return f"SELECT {', '.join(sample) or '1'} UNION ALL SELECT * FROM ({statement})"


def read_batches(database: Database, statement: str, columns: T.StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a statement as they arrive, in the types that were reported to Spark."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(columns, timezone="UTC")
    skip = 1 if database.kind == "sqlite" else 0
    with connected(database) as connection, cursor_of(connection) as cursor:
        for batch in cursor.execute(statement).fetch_record_batch():
            rows = batch.slice(skip)
            skip = 0
            if rows.num_rows:
                arrays = [_converted(rows.column(index), field) for index, field in enumerate(schema)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _converted(array: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if array.type == field.type:
        return array
    try:
        if pa.types.is_timestamp(field.type) and field.type.tz and pa.types.is_string(array.type):
            return pc.assume_timezone(array.cast(pa.timestamp("us")), field.type.tz)
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecord(
            f"column {field.name!r}: a value does not fit {field.type}: {error}; "
            "read it as string by a schema of your own"
        ) from None


def bounds(connection: Connection, options: ReadOptions, column: str, predicate: str) -> tuple[Any, Any]:
    name = identifier(column)
    where = f" WHERE {predicate}" if predicate else ""
    [found] = rows_of(connection, f"SELECT min({name}), max({name}) FROM {options.relation}{where}")
    return found[0], found[1]
