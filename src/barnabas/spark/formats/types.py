"""What formats and tables have to do with Spark's types."""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812


def nullable(kind: T.DataType) -> T.DataType:
    """The same type with null allowed everywhere.

    That is the type of what was decoded, since a value that cannot be read has nulls for all columns; and the type to
    create a table by, since Spark's knowledge that an expression is never null is not a wish of the user's.
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
