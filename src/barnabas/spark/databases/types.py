"""Columns of Spark as columns of a table: the type to create, the types that an existing column may have, the
conversion.

Values without a type in the database are passed as JSON text. SQLite, which has few types, stores days, times and
decimals as text with the same order or the same form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql import types as T  # noqa: N812

from barnabas.errors import InvalidConfig
from barnabas.spark.databases.connection import TableName, identifier

if TYPE_CHECKING:
    from pyspark.sql import Column

Kind = Literal["postgresql", "sqlite"]

WHOLE: Final = frozenset({"smallint", "integer", "bigint", "numeric", "double precision"})
TZ, NTZ = "timestamp with time zone", "timestamp without time zone"
# The type to create, and the types that accept it without a change of its meaning.
POSTGRESQL: Final[dict[type[T.DataType], tuple[str, frozenset[str]]]] = {
    T.BooleanType: ("boolean", frozenset({"boolean"})),
    T.ByteType: ("smallint", WHOLE),
    T.ShortType: ("smallint", WHOLE),
    T.IntegerType: ("integer", WHOLE),
    T.LongType: ("bigint", WHOLE),
    T.FloatType: ("real", frozenset({"real", "double precision", "numeric"})),
    T.DoubleType: ("double precision", frozenset({"double precision", "numeric"})),
    T.DecimalType: ("numeric", frozenset({"numeric"})),
    T.BinaryType: ("bytea", frozenset({"bytea"})),
    T.DateType: ("date", frozenset({"date", NTZ})),
    T.TimestampType: (TZ, frozenset({TZ, NTZ})),
    T.TimestampNTZType: (NTZ, frozenset({NTZ})),
}
SQLITE: Final[dict[type[T.DataType], str]] = {
    T.BooleanType: "BOOLEAN",
    T.ByteType: "INTEGER",
    T.ShortType: "INTEGER",
    T.IntegerType: "INTEGER",
    T.LongType: "INTEGER",
    T.FloatType: "REAL",
    T.DoubleType: "REAL",
    T.BinaryType: "BLOB",
    T.DateType: "DATE",
    T.TimestampType: "TIMESTAMP",
    T.TimestampNTZType: "TIMESTAMP",
}
JSON_TAKES: Final = frozenset({"json", "jsonb", "text", "character varying"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of an existing table, its type as the database writes it."""

    name: str
    type: str
    # Whether a row may be inserted without it.
    optional: bool


def _is_json(kind: T.DataType, database: Kind) -> bool:
    if isinstance(kind, T.ArrayType):
        return database == "sqlite" or type(kind.elementType) not in POSTGRESQL | {T.StringType: 0}
    return isinstance(kind, T.StructType | T.MapType | T.VariantType)


def handed_over(column: Column, kind: T.DataType, database: Kind) -> Column:
    """The column as the database's driver takes it."""
    from pyspark.sql import functions as F  # noqa: N812

    if _is_json(kind, database):
        return F.to_json(column)
    if type(kind) in POSTGRESQL and not (database == "sqlite" and isinstance(kind, T.DecimalType)):
        return column
    return column if isinstance(kind, T.ArrayType) else column.cast("string")


def type_to_create(kind: T.DataType, database: Kind) -> str:
    if database == "sqlite":
        return SQLITE.get(type(kind), "TEXT")
    if _is_json(kind, database):
        return "jsonb"
    if isinstance(kind, T.ArrayType):
        return type_to_create(kind.elementType, database) + "[]"
    if isinstance(kind, T.DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    return POSTGRESQL[type(kind)][0] if type(kind) in POSTGRESQL else "text"


def takes(column_type: str, kind: T.DataType, database: Kind) -> bool:
    """Whether a column of the table takes values of a type as they are. Text may become anything that it reads as."""
    if database == "sqlite":
        return True
    modifier = re.search(r"\((\d+)(?:,(-?\d+))?\)", column_type)
    base = re.sub(r"\(\d+(,-?\d+)?\)", "", column_type)
    if _is_json(kind, database):
        return base in JSON_TAKES
    if isinstance(kind, T.ArrayType):
        return base.endswith("[]") and takes(base[:-2], kind.elementType, database)
    if type(kind) not in POSTGRESQL:
        return not base.endswith("[]") or isinstance(kind, T.StringType)
    if base not in POSTGRESQL[type(kind)][1]:
        return False
    # A numeric of fewer decimals would round what it is given, without a word.
    scale = int(modifier[2] or 0) if modifier and base == "numeric" else None
    if scale is None or not isinstance(kind, T.DecimalType):
        return scale is None or isinstance(kind, T.IntegralType)
    return scale >= kind.scale


def create_statement(table: TableName, columns: T.StructType, keys: Sequence[str], database: Kind) -> str:
    parts = [
        f"{identifier(field.name)} {type_to_create(field.dataType, database)}"
        + (" NOT NULL" if field.name in keys else "")
        for field in columns.fields
    ]
    if keys:
        parts.append(f"PRIMARY KEY ({', '.join(map(identifier, keys))})")
    return f"CREATE TABLE IF NOT EXISTS {table.quoted} ({', '.join(parts)})"


def check_columns(
    table: TableName, found: Sequence[TableColumn], columns: T.StructType, database: Kind
) -> None:
    """One clear error for rows that the table does not take."""
    by_name = {column.name: column for column in found}
    for field in columns.fields:
        column = by_name.get(field.name)
        if column is None:
            raise InvalidConfig(
                f"table {table}: it has no column {field.name!r}, which the rows have; it has {', '.join(by_name)}"
            )
        if not takes(column.type, field.dataType, database):
            raise InvalidConfig(
                f"table {table}: column {field.name!r} is {column.type} and the rows' is "
                f"{field.dataType.simpleString()}: cast it in a transform"
            )
    given = set(columns.fieldNames())
    for column in found:
        if column.name not in given and not column.optional:
            raise InvalidConfig(
                f"table {table}: column {column.name!r} has no default and may not be null, and the rows have none"
            )
