"""The formats of record values: JSON, Avro, text or bytes, as columns and back.

A value that does not match the format becomes a row with an `_error` that names the error and its position; it never
fails the query. `decode` marks good and bad rows, and the caller decides what to do with the bad ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, DataType, StructType

from barnabas.errors import InvalidConfig
from barnabas.spark.formats import json as formats_json
from barnabas.spark.formats.avro import AvroDecoder, AvroEncoder, SchemaTexts, avro_schema, spark_schema
from barnabas.spark.formats.registry import WIRE_HEADER, WIRE_MAGIC, open_registry, registered_schema
from barnabas.spark.workers import require_workers

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

# A DataFrame with the decoded columns, the columns to take from it, and the error.
Decoded: TypeAlias = tuple[DataFrame, dict[str, Column], Column]
ERROR: Final = "_error"
DECODED: Final = "_decoded"
# The column that a text or bytes become, unless the spec names another.
COLUMN_OF_KIND: Final = {"string": "text", "bytes": "data"}
# Columns of a record that a topic sink takes in addition to the value.
RECORD_COLUMNS: Final = ("key", "topic", "partition", "headers", "timestamp")
VALUE_BYTES_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSpec:
    """The format of values.

    `schema` is text: for JSON, Spark's DDL, Spark's schema as JSON or a JSON Schema; for Avro, its JSON; for strings
    and bytes, the name of their column. For Avro it is the reader's schema; `writer_schema` is the schema of bare
    values, if it differs. With a `registry` (an http address, or a directory of `<id>.avsc` files) values have its wire
    format and name their writer's schema themselves. `subject` (its newest schema) or `schema_id` selects a schema in
    the registry; writers add theirs to the subject.
    """

    kind: Literal["json", "avro", "string", "bytes"]
    schema: str | None = None
    registry: str | None = None
    subject: str | None = None
    schema_id: int | None = None
    writer_schema: str | None = None


def decode(frame: DataFrame, column: str, spec: FormatSpec, *, into: str | None = None) -> DataFrame:
    """The DataFrame with the columns of the values in `column`, and `_error`: null for a good row, else error and
    position.

    `column` may be a path (`record.value`). With `into`, the columns are one struct with that name. The columns of a
    bad row have no meaning.
    """
    staged, columns, error = _DECODERS[spec.kind](frame, F.col(column), spec)
    added = {into: F.struct(*(part.alias(name) for name, part in columns.items()))} if into else columns
    for name in (*added, ERROR):
        if name in frame.columns:
            raise InvalidConfig(
                f"column {name!r} of the {spec.kind} values is a column of the rows already: rename one of them"
            )
    picked = [part.alias(name) for name, part in added.items()]
    return staged.select("*", *picked, error.alias(ERROR)).drop(DECODED)


def _once(column: Column) -> Column:
    """A column that Spark computes once per row.

    Spark would push a filter on decoded values below the decoding and decode a second time. It does not push a filter
    past a column that depends on the partition's number.
    """
    return F.when(F.spark_partition_id() >= 0, column)


def _decode_json(frame: DataFrame, value: Column, spec: FormatSpec) -> Decoded:
    if not spec.schema:
        raise InvalidConfig(
            "schema: JSON values need one to become columns, such as 'id BIGINT, name STRING'"
        )
    columns = formats_json.parse_schema(spec.schema)
    body, header_error = _body(value, spec)
    text = body.cast("string")
    staged = frame.withColumn(DECODED, _once(formats_json.parsed(text, columns)))
    found = F.col(DECODED)
    error = F.coalesce(header_error, formats_json.error_of(text, found, columns))
    return staged, {name: found.getField(name) for name in columns.fieldNames()}, error


def _decode_avro(frame: DataFrame, value: Column, spec: FormatSpec) -> Decoded:
    reader = _reader_schema(spec)
    writer = (spec.writer_schema,) if spec.writer_schema else reader
    decoder = AvroDecoder(reader=reader, writer=writer, registry=spec.registry or "")
    result = decoder.result_type()
    require_workers(frame.sparkSession)

    function = _on_batches(decoder, result).asNondeterministic()
    row = F.col(DECODED)
    staged = frame.withColumn(DECODED, function(value.cast("binary")))
    return staged, {name: row.getField(name) for name in result.fieldNames()[:-1]}, row.getField(ERROR)


def _decode_string(frame: DataFrame, value: Column, spec: FormatSpec) -> Decoded:
    text = value.cast("string")
    error = F.coalesce(_null_error(value), _utf8_error(text))
    return frame, {spec.schema or COLUMN_OF_KIND["string"]: text}, error


def _decode_bytes(frame: DataFrame, value: Column, spec: FormatSpec) -> Decoded:
    return frame, {spec.schema or COLUMN_OF_KIND["bytes"]: value.cast("binary")}, _null_error(value)


_DECODERS: Final[Mapping[str, Callable[[DataFrame, Column, FormatSpec], Decoded]]] = {
    "json": _decode_json,
    "avro": _decode_avro,
    "string": _decode_string,
    "bytes": _decode_bytes,
}


def _null_error(value: Column) -> Column:
    return F.when(value.isNull(), F.lit("there is no value (null)"))


def _utf8_error(text: Column) -> Column:
    return F.when(~F.is_valid_utf8(text), F.lit("not UTF-8"))


def _body(value: Column, spec: FormatSpec) -> tuple[Column, Column]:
    """The value after the registry's header, and the error of the header."""
    if not spec.registry:
        return value, F.lit(None).cast("string")
    data = value.cast("binary")
    magic = F.lit(bytearray([WIRE_MAGIC]))
    error = F.when(
        F.length(data) < WIRE_HEADER.size, F.lit("too short for the registry's header of 5 bytes")
    ).when(F.substring(data, 1, 1) != magic, F.lit("byte 0 is not the registry's magic 0"))
    return F.substring(data, WIRE_HEADER.size + 1, VALUE_BYTES_MAX), error


def _reader_schema(spec: FormatSpec) -> SchemaTexts:
    if spec.schema:
        return (spec.schema,)
    if not spec.registry:
        raise InvalidConfig("schema: Avro values need one, or a registry with a subject or a schema id")
    if spec.schema_id is None and not spec.subject:
        raise InvalidConfig(
            "subject: which of the registry's schemas gives the columns? Or give schema or schema_id"
        )
    schema_id = (
        open_registry(spec.registry).latest(spec.subject or "") if spec.schema_id is None else spec.schema_id
    )
    return registered_schema(spec.registry, schema_id)


def encode(frame: DataFrame, spec: FormatSpec, *, columns: Sequence[str] | None = None) -> DataFrame:
    """The DataFrame with `value`, encoded from the columns, and with the other columns of a record: key, topic, ….

    The columns are those of the schema; without a schema, all except those of a record.
    """
    kept = [F.col(name) for name in frame.columns if name in RECORD_COLUMNS]
    chosen = list(columns) if columns is not None else [c for c in frame.columns if c not in RECORD_COLUMNS]
    return frame.select(*kept, _ENCODERS[spec.kind](frame, chosen, spec, columns is not None).alias("value"))


def _encode_json(frame: DataFrame, columns: list[str], spec: FormatSpec, chosen: bool) -> Column:
    if spec.schema and not chosen:
        columns = formats_json.parse_schema(spec.schema).fieldNames()
        _require_columns(frame, columns)
    text = F.to_json(F.struct(*(_quoted(name) for name in columns)))
    if not spec.registry:
        return text
    schema_id = spec.schema_id
    if schema_id is None:
        if not spec.subject:
            raise InvalidConfig("schema_id: JSON values in the registry's wire format need one, or a subject")
        schema_id = open_registry(spec.registry).latest(spec.subject)
    header = F.lit(bytearray(WIRE_HEADER.pack(WIRE_MAGIC, schema_id)))
    return F.concat(header, text.cast("binary"))


def _encode_avro(frame: DataFrame, columns: list[str], spec: FormatSpec, chosen: bool) -> Column:
    registry = open_registry(spec.registry) if spec.registry else None
    if spec.schema:
        schema: SchemaTexts = (spec.schema,)
    elif spec.registry and spec.schema_id is not None:
        schema = registered_schema(spec.registry, spec.schema_id)
    else:
        schema = (json.dumps(avro_schema(frame.select(*map(_quoted, columns)).schema)),)
    wanted = spark_schema(schema)
    schema_id = spec.schema_id
    if registry is not None and schema_id is None:
        if not spec.subject:
            raise InvalidConfig("subject: values in the registry's wire format need one, or a schema_id")
        schema_id = registry.enroll(spec.subject, schema[-1])
    require_workers(frame.sparkSession)
    encoder = AvroEncoder(schema, schema_id if registry is not None else None)
    row = F.struct(*_fitting(frame, columns if chosen or not spec.schema else None, wanted))

    encoded: Column = _on_batches(encoder, BinaryType())(row)
    return encoded


def _on_batches(codec: Callable[[pa.Array], pa.Array], result: DataType) -> UserDefinedFunctionLike:
    # Spark determines the kind of function by its annotations at run time: its stubs only know the way with a constant.
    def convert(column: pa.Array) -> pa.Array:
        return codec(column)

    return arrow_udf(convert, result)  # type: ignore[call-overload, no-any-return]


def _fitting(frame: DataFrame, columns: list[str] | None, wanted: StructType) -> list[Column]:
    """The columns for the fields of a schema; numbers are widened, nothing else is changed."""
    names = wanted.fieldNames() if columns is None else columns
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    fitting = []
    for name in names:
        if name not in wanted.fieldNames():
            raise InvalidConfig(f"column {name!r} is not a field of the Avro schema")
        field = wanted[name]
        found, expected = types.get(name), field.dataType.simpleString()
        if found is None:
            # Whether the schema has a default for it, the encoder knows.
            continue
        if found != expected and expected not in _WIDER.get(found, ()):
            raise InvalidConfig(
                f"column {name!r} is {found}, the Avro schema has {expected}: cast it in a transform"
            )
        fitting.append(_quoted(name).cast(field.dataType).alias(name) if found != expected else _quoted(name))
    if not fitting:
        raise InvalidConfig(
            f"the rows have none of the Avro schema's fields {', '.join(wanted.fieldNames())}"
        )
    return fitting


_WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "tinyint": ("int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint", "double"),
    "float": ("double",),
}


def _encode_plain(frame: DataFrame, columns: list[str], spec: FormatSpec, chosen: bool) -> Column:
    for name in (spec.schema, *columns) if chosen else (spec.schema, "value", COLUMN_OF_KIND[spec.kind]):
        if name and name in frame.columns:
            return _quoted(name).cast("string" if spec.kind == "string" else "binary")
    raise InvalidConfig(
        f"format {spec.kind}: the rows have no column {spec.schema or 'value'!r}, but {', '.join(frame.columns)}"
    )


_ENCODERS: Final[Mapping[str, Callable[[DataFrame, list[str], FormatSpec, bool], Column]]] = {
    "json": _encode_json,
    "avro": _encode_avro,
    "string": _encode_plain,
    "bytes": _encode_plain,
}


def _quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _require_columns(frame: DataFrame, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InvalidConfig(
            f"the schema has {', '.join(missing)}, which the rows have not: they have {', '.join(frame.columns)}"
        )
