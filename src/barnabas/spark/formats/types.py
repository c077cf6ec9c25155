"""Conversions of Spark's types for formats and tables."""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812


def nullable(kind: T.DataType) -> T.DataType:
    """The same type with null allowed everywhere.

    This is the type of decoded values, because a value that cannot be decoded has null in all columns. It is also the
    type for a new table, because Spark's knowledge that an expression is never null is not a constraint of the user.
    """
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, nullable(f.dataType), True) for f in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(nullable(kind.elementType), True)
    if isinstance(kind, T.MapType):
        return T.MapType(nullable(kind.keyType), nullable(kind.valueType), True)
    return kind


def nullable_columns(columns: T.StructType) -> T.StructType:
    changed = nullable(columns)
    assert isinstance(changed, T.StructType)
    return changed
