"""Avro values to columns and back, by fastavro on whole Arrow batches; Avro's types as Spark's and Arrow's.

| Avro | Spark |
|---|---|
| boolean, int, long, float, double, string, bytes | boolean, int, bigint, float, double, string, binary |
| enum; fixed | string; binary |
| record, array, map | struct, array, map with string keys |
| a union with null | the other type, nullable |
| a union of int and long; with float or double in it | bigint; double |
| decimal (on bytes or fixed) | decimal |
| date; timestamp-millis, -micros; local-timestamp-… | date; timestamp; timestamp_ntz |
| uuid | string |
| another logical type | that of the type it is on |

Other unions and records that contain themselves have no columns: such a schema is refused.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import SchemaParseException, UnknownType
from pyspark.sql import types as T  # noqa: N812

from barnabas.errors import InvalidConfig, InvalidRecord, ResourceNotFound
from barnabas.spark.formats.registry import CACHED_SCHEMAS_MAX, WIRE_HEADER, WIRE_MAGIC, registered_schema
from barnabas.spark.formats.types import nullable_columns

# An Avro schema as JSON, behind those that it borrows named types from.
SchemaTexts: TypeAlias = tuple[str, ...]

PRIMITIVES: Final[dict[str, tuple[T.DataType, pa.DataType]]] = {
    "null": (T.NullType(), pa.null()),
    "boolean": (T.BooleanType(), pa.bool_()),
    "int": (T.IntegerType(), pa.int32()),
    "long": (T.LongType(), pa.int64()),
    "float": (T.FloatType(), pa.float32()),
    "double": (T.DoubleType(), pa.float64()),
    "bytes": (T.BinaryType(), pa.binary()),
    "string": (T.StringType(), pa.string()),
    "fixed": (T.BinaryType(), pa.binary()),
    "enum": (T.StringType(), pa.string()),
}
# A timestamp keeps its unit in Arrow: a writer's plain long is then read in the unit that the reader's schema names.
LOGICAL: Final[dict[str, tuple[T.DataType, pa.DataType]]] = {
    "int-date": (T.DateType(), pa.date32()),
    "long-timestamp-millis": (T.TimestampType(), pa.timestamp("ms", "UTC")),
    "long-timestamp-micros": (T.TimestampType(), pa.timestamp("us", "UTC")),
    "long-local-timestamp-millis": (T.TimestampNTZType(), pa.timestamp("ms")),
    "long-local-timestamp-micros": (T.TimestampNTZType(), pa.timestamp("us")),
}
DECIMAL_ON: Final = frozenset({"bytes", "fixed"})
DECIMAL_PRECISION_MAX: Final = 38
INTEGERS: Final = frozenset({"int", "long"})
NUMBERS: Final = frozenset({"int", "long", "float", "double"})
DEPTH_MAX: Final = 64
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHOWN_CHARACTERS_MAX: Final = 200


def _parse(schema: SchemaTexts, *, expand: bool = False, plain: bool = False) -> Any:
    named: dict[str, Any] = {}
    parsed: Any = None
    for index, text in enumerate(schema):
        try:
            tree = json.loads(text)
            parsed = parse_schema(
                _plain(tree) if plain else tree,
                named_schemas=named,
                expand=expand and index == len(schema) - 1,
            )
        except (ValueError, TypeError, KeyError, SchemaParseException, UnknownType) as error:
            raise InvalidConfig(f"schema: not an Avro schema: {type(error).__name__}: {error}") from None
    return parsed


def spark_schema(schema: SchemaTexts) -> T.StructType:
    """The columns of a record's schema."""
    columns, _ = _record_types(schema)
    return columns


@functools.lru_cache(maxsize=CACHED_SCHEMAS_MAX)
def _record_types(schema: SchemaTexts) -> tuple[T.StructType, pa.StructType]:
    expanded = _parse(schema, expand=True)
    if not isinstance(expanded, dict) or expanded.get("type") != "record":
        raise InvalidConfig(f"schema: a value's Avro schema must be a record, not {_named(expanded)}")
    columns, arrow, _ = _types(expanded, str(expanded["name"]), DEPTH_MAX)
    assert isinstance(columns, T.StructType)
    return columns, arrow


def _named(schema: Any) -> str:
    if isinstance(schema, list):
        return "a union of " + ", ".join(_named(branch) for branch in schema)
    return str(schema.get("type", schema) if isinstance(schema, dict) else schema)


def _types(schema: Any, where: str, depth_left: int) -> tuple[T.DataType, pa.DataType, bool]:
    """Spark's type, Arrow's and whether null is among the values."""
    if depth_left == 0:
        raise InvalidConfig(f"schema: {where} is nested deeper than {DEPTH_MAX} levels")
    if isinstance(schema, list):
        return _union_types(schema, where, depth_left)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _types(kind, where, depth_left - 1)
    inner = depth_left - 1
    if kind == "record":
        fields = [
            (field["name"], *_types(field["type"], f"{where}.{field['name']}", inner))
            for field in schema["fields"]
        ]
        return (
            T.StructType([T.StructField(name, spark, null) for name, spark, _, null in fields]),
            pa.struct([pa.field(name, arrow) for name, _, arrow, _ in fields]),
            False,
        )
    if kind == "array":
        spark, arrow, null = _types(schema["items"], f"{where}[]", inner)
        return T.ArrayType(spark, null), pa.list_(arrow), False
    if kind == "map":
        spark, arrow, null = _types(schema["values"], f"{where}{{}}", inner)
        return T.MapType(T.StringType(), spark, null), pa.map_(pa.string(), arrow), False
    if kind not in PRIMITIVES:
        raise InvalidConfig(f"schema: {where} contains itself ({kind}), which columns cannot")
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal" and kind in DECIMAL_ON:
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > DECIMAL_PRECISION_MAX:
            raise InvalidConfig(f"schema: {where}: a decimal has at most 38 digits, not {precision}")
        return T.DecimalType(precision, scale), pa.decimal128(precision, scale), False
    found = LOGICAL.get(f"{kind}-{logical}") or PRIMITIVES[kind]
    return *found, kind == "null"


def _union_types(branches: list[Any], where: str, depth_left: int) -> tuple[T.DataType, pa.DataType, bool]:
    others = [branch for branch in branches if branch != "null"]
    null = len(others) < len(branches)
    if len(others) == 1:
        spark, arrow, _ = _types(others[0], where, depth_left - 1)
        return spark, arrow, null
    kinds = {branch if isinstance(branch, str) else "" for branch in others}
    if kinds and kinds <= INTEGERS:
        return *PRIMITIVES["long"], null
    if kinds and kinds <= NUMBERS:
        return *PRIMITIVES["double"], null
    raise InvalidConfig(f"schema: {where} is {_named(branches)}, which no column can hold")


AVRO_OF_SPARK: Final[dict[type[T.DataType], Any]] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
    T.BinaryType: "bytes",
    T.DateType: {"type": "int", "logicalType": "date"},
    T.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    T.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def avro_schema(columns: T.StructType, name: str = "Value") -> dict[str, Any]:
    """The Avro record that holds these columns."""
    fields = []
    for field in columns.fields:
        if not NAME.fullmatch(field.name):
            raise InvalidConfig(f"column {field.name!r}: not a name that Avro allows; rename it")
        kind = _avro_type(field.dataType, f"{name}_{field.name}")
        # The default lets a reader that has this column read values that were written before it was there.
        fields.append(
            {"name": field.name, "type": ["null", kind], "default": None}
            if field.nullable
            else {"name": field.name, "type": kind}
        )
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(kind: T.DataType, name: str) -> Any:
    if isinstance(kind, T.StructType):
        return avro_schema(kind, name)
    if isinstance(kind, T.ArrayType):
        items = _avro_type(kind.elementType, name)
        return {"type": "array", "items": ["null", items] if kind.containsNull else items}
    if isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        values = _avro_type(kind.valueType, name)
        return {"type": "map", "values": ["null", values] if kind.valueContainsNull else values}
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    found = AVRO_OF_SPARK.get(type(kind))
    if found is None:
        raise InvalidConfig(f"column {name.partition('_')[2]}: {kind.simpleString()} has no Avro type")
    return found


def _plain(schema: Any) -> Any:
    """The schema without the logical types that columns do not have: fastavro makes objects of some of those."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _plain(value) if key in ("type", "items", "values", "fields") else value
        for key, value in schema.items()
        if key != "logicalType" or value == "decimal" or f"{schema.get('type')}-{value}" in LOGICAL
    }


@functools.lru_cache(maxsize=CACHED_SCHEMAS_MAX)
def _for_values(schema: SchemaTexts) -> Any:
    """A schema as fastavro reads and writes by it."""
    return _parse(schema, plain=True)


class AvroDecoder:
    """Decodes a column of values to a struct of the reader's columns and `_error`.

    Pickles small: schemas travel as text; the worker parses them and gets those of a registry.
    """

    def __init__(self, *, reader: SchemaTexts, writer: SchemaTexts, registry: str) -> None:
        self._reader = reader
        self._writer = writer
        self._registry = registry

    def result_type(self) -> T.StructType:
        columns = nullable_columns(spark_schema(self._reader))
        return T.StructType([*columns.fields, T.StructField("_error", T.StringType())])

    def __call__(self, values: pa.Array) -> pa.Array:
        _, arrow = _record_types(self._reader)
        reader = _for_values(self._reader)
        if self._registry:
            decode = _RegistryReader(self._registry, reader).decode
        else:
            decode = functools.partial(_read, start=0, writer=_for_values(self._writer), reader=reader)
        rows, errors = _decode_all(values.to_pylist(), decode)
        try:
            columns = pa.array(rows, type=arrow)
        except (pa.ArrowException, ValueError, OverflowError):
            columns = _columns_one_by_one(rows, errors, arrow)
        return _with_errors(columns, errors)


def _decode_all(
    values: Iterable[bytes | None], decode: Callable[[bytes], Any]
) -> tuple[list[Any], list[str | None]]:
    rows: list[Any] = []
    errors: list[str | None] = []
    for value in values:
        try:
            if value is None:
                raise InvalidRecord("there is no value (null)")
            rows.append(decode(value))
            errors.append(None)
        except (InvalidRecord, ResourceNotFound) as error:
            rows.append(None)
            errors.append(str(error))
    return rows, errors


def _read(value: bytes, start: int, writer: Any, reader: Any) -> Any:
    body = io.BytesIO(value)
    body.seek(start)
    try:
        row = schemaless_reader(body, writer, reader)
    except Exception as error:
        # A body that is not what its schema says makes fastavro fail in any way there is: an index, a time out of
        # range, text that is not UTF-8, an end of file.
        raise InvalidRecord(
            f"not a value of its Avro schema at byte {body.tell()} of {len(value)}: "
            f"{type(error).__name__}: {str(error)[:SHOWN_CHARACTERS_MAX]}"
        ) from None
    if body.tell() < len(value):
        raise InvalidRecord(
            f"not a value of its Avro schema: it ends at byte {body.tell()} of {len(value)} by its schema"
        )
    return row


class _RegistryReader:
    """Reads values in the registry's wire format, for one batch: the next batch asks again for unknown schemas."""

    def __init__(self, registry: str, reader: Any) -> None:
        self._registry = registry
        self._reader = reader
        self._writers: dict[int, Any] = {}

    def decode(self, value: bytes) -> Any:
        if len(value) < WIRE_HEADER.size:
            raise InvalidRecord(
                f"{len(value)} bytes, too short for the registry's header of {WIRE_HEADER.size}"
            )
        magic, schema_id = WIRE_HEADER.unpack_from(value)
        if magic != WIRE_MAGIC:
            raise InvalidRecord(f"byte 0 is {magic}, not the registry's magic {WIRE_MAGIC}")
        try:
            writer = self._writers[schema_id]
        except KeyError:
            writer = self._writers[schema_id] = self._writer(schema_id)
        if isinstance(writer, str):
            raise ResourceNotFound(writer)
        return _read(value, WIRE_HEADER.size, writer, self._reader)

    def _writer(self, schema_id: int) -> Any:
        """The parsed schema, or why there is none.

        A registry that does not answer fails the task: no value is at fault.
        """
        try:
            return _for_values(registered_schema(self._registry, schema_id))
        except (ResourceNotFound, InvalidConfig) as error:
            return f"schema id {schema_id} in bytes 1 to 4: {error}"


def _columns_one_by_one(rows: list[Any], errors: list[str | None], arrow: pa.StructType) -> pa.Array:
    """The slow way, when something among the rows has no place in the columns: finds out which rows, and why."""
    for index, row in enumerate(rows):
        if row is None:
            continue
        for field in arrow:
            try:
                pa.array([row[field.name]], type=field.type)
            except (pa.ArrowException, ValueError, OverflowError) as error:
                shown = str(error)[:SHOWN_CHARACTERS_MAX]
                errors[index] = f"field {field.name}: does not fit {field.type}: {shown}"
                rows[index] = None
                break
    return pa.array(rows, type=arrow)


def _with_errors(columns: pa.StructArray, errors: list[str | None]) -> pa.Array:
    fields = [*columns.flatten(), pa.array(errors, pa.string())]
    names = [*(field.name for field in columns.type), "_error"]
    return pa.StructArray.from_arrays(fields, names)


class AvroEncoder:
    """Encodes a struct column to values, in the registry's wire format where there is a schema id."""

    def __init__(self, schema: SchemaTexts, schema_id: int | None) -> None:
        self._schema = schema
        self._header = b"" if schema_id is None else WIRE_HEADER.pack(WIRE_MAGIC, schema_id)

    def __call__(self, rows: pa.Array) -> pa.Array:
        schema = _for_values(self._schema)
        values: list[bytes] = []
        names = [field.name for field in rows.type]
        # A column at a time becomes Python's faster than a row at a time.
        columns = [column.to_pylist(maps_as_pydicts="strict") for column in rows.flatten()]
        for fields in zip(*columns, strict=True):
            row = dict(zip(names, fields, strict=True))
            body = io.BytesIO(self._header)
            body.seek(len(self._header))
            try:
                schemaless_writer(body, schema, row)
            except Exception as error:
                # fastavro reports a value that does not fit by whatever error it caused, and names the field.
                raise InvalidRecord(
                    f"a row does not fit the Avro schema: {type(error).__name__}: {str(error)[:SHOWN_CHARACTERS_MAX]}"
                ) from None
            values.append(body.getvalue())
        return pa.array(values, pa.binary())
