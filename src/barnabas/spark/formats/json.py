"""JSON values to columns by Spark's own parser, in the JVM; a value that does not fit says where it does not.

Schemas may be Spark's DDL (`id BIGINT NOT NULL, name STRING`), Spark's schemas as JSON, or JSON Schema as far as it
describes columns: types, properties, required, items, additionalProperties, formats date and date-time, local $refs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import ParseException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from barnabas.errors import InvalidConfig
from barnabas.spark import failures

if TYPE_CHECKING:
    from pyspark.sql import Column

DEPTH_MAX: Final = 64
SHOWN_CHARACTERS_MAX: Final = 100
CORRUPT: Final = "_barnabas_corrupt"
# One object behind another; or a text that says so within an object, which is rare enough to be looked at twice.
TWO_OBJECTS: Final = r"\}\s*\{"

SCALARS: Final[dict[str, T.DataType]] = {
    "string": T.StringType(),
    "integer": T.LongType(),
    "number": T.DoubleType(),
    "boolean": T.BooleanType(),
}
STRING_FORMATS: Final[dict[str, T.DataType]] = {"date-time": T.TimestampType(), "date": T.DateType()}


def parse_schema(text: str) -> T.StructType:
    """The columns that a text names. DDL is parsed by Spark: it needs a session."""
    if not text.lstrip().startswith("{"):
        return parse_ddl(text)
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise InvalidConfig(f"schema: not JSON: {error}") from None
    if tree.get("type") == "struct":
        try:
            return T.StructType.fromJson(tree)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidConfig(f"schema: not a schema of Spark's: {error!r}") from None
    kind, _ = _type_of(tree, tree, "$", DEPTH_MAX)
    if not isinstance(kind, T.StructType):
        raise InvalidConfig(
            f"schema: JSON Schema must describe an object with properties, not {kind.simpleString()}"
        )
    return kind


def parse_ddl(text: str) -> T.StructType:
    try:
        columns = T.StructType.fromDDL(text)
    except ParseException as error:
        raise InvalidConfig(f"schema: not Spark's DDL: {failures.told(error)}") from None
    if not isinstance(columns, T.StructType):
        raise InvalidConfig(f"schema: {text!r} names no columns, but the type {columns.simpleString()}")
    return columns


def _type_of(schema: Any, root: dict[str, Any], where: str, depth_left: int) -> tuple[T.DataType, bool]:
    """The type that a part of a JSON Schema describes, and whether null is allowed."""
    if depth_left == 0:
        raise InvalidConfig(f"schema: {where} is nested deeper than {DEPTH_MAX} levels")
    if not isinstance(schema, dict):
        raise InvalidConfig(f"schema: {where} is {schema!r}, which names no type")
    if "$ref" in schema:
        return _type_of(_resolve(str(schema["$ref"]), root, where), root, where, depth_left - 1)
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    null = "null" in kinds
    kinds = [kind for kind in kinds if kind != "null"]
    if sorted(kinds) == ["integer", "number"]:
        kinds = ["number"]
    if len(kinds) != 1:
        raise InvalidConfig(f"schema: {where} must have one type beside null, not {schema.get('type')!r}")
    [kind] = kinds
    inner = depth_left - 1
    if kind == "object" and "properties" in schema:
        required = set(schema.get("required") or ())
        fields = []
        for name, part in schema["properties"].items():
            found, may_be_null = _type_of(part, root, f"{where}.{name}", inner)
            fields.append(T.StructField(name, found, may_be_null or name not in required))
        return T.StructType(fields), null
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        values, may_be_null = _type_of(schema["additionalProperties"], root, f"{where}{{}}", inner)
        return T.MapType(T.StringType(), values, may_be_null), null
    if kind == "array" and "items" in schema:
        items, may_be_null = _type_of(schema["items"], root, f"{where}[]", inner)
        return T.ArrayType(items, may_be_null), null
    if kind == "string":
        return STRING_FORMATS.get(schema.get("format", ""), T.StringType()), null
    if kind in SCALARS:
        return SCALARS[kind], null
    raise InvalidConfig(f"schema: {where} is an {kind} whose parts are not described")


def _resolve(reference: str, root: dict[str, Any], where: str) -> Any:
    found: Any = root
    for step in reference.removeprefix("#").removeprefix("/").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if not reference.startswith("#") or not isinstance(found, dict) or name not in found:
            raise InvalidConfig(f"schema: {where} refers to {reference}, which is not in the schema")
        found = found[name]
    return found


def parsed(text: Column, columns: T.StructType) -> Column:
    """A struct of the columns and of one more, which is null if the value fits the types."""
    schema = T.StructType([*columns.fields, T.StructField(CORRUPT, T.StringType())])
    return F.from_json(text, schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})


def _is_one_value(text: Column) -> Column:
    """Whether the text is JSON, and one value: as a member of an object it lets the member behind it be found."""
    return F.get_json_object(F.concat(F.lit('{"v":'), text, F.lit(',"e":0}')), "$.e").isNotNull()


def _may_be_more(text: Column) -> Column:
    """Spark ignores bytes after an object. A second check examines values that seem to have such bytes."""
    return ~F.endswith(text, F.lit("}")) | text.rlike(TWO_OBJECTS)


def error_of(text: Column, row: Column, columns: T.StructType) -> Column:
    """The error of a value and its position, null if there is none. Only bad values pay for this search."""
    valid = F.is_valid_utf8(text)
    missing = list(_missing(row, columns, "$", DEPTH_MAX))
    corrupt = row.getField(CORRUPT).isNotNull()
    bad = row.isNull() | corrupt | ~valid | (_may_be_more(text) & ~_is_one_value(text))
    for is_missing, _ in missing:
        bad = bad | is_missing
    mismatches = F.flatten(F.array(*_mismatches(text, row, columns, "$", "$", DEPTH_MAX)))
    absences = (F.when(~corrupt & is_missing, F.lit(told)) for is_missing, told in missing)
    told = F.concat_ws("; ", mismatches, *absences)
    shown = F.substring(text, 1, SHOWN_CHARACTERS_MAX)
    is_object = F.startswith(F.ltrim(text, F.lit(" \t\r\n")), F.lit("{"))
    diagnosis = (
        F.when(text.isNull(), F.lit("there is no value (null)"))
        .when(~valid, F.lit("not UTF-8"))
        .when(~_is_one_value(text), F.concat(F.lit("not JSON: "), shown))
        .when(~is_object, F.concat(F.lit("not a JSON object: "), shown))
        .when(told != "", told)
        .otherwise(F.concat(F.lit("not a value of the schema: "), shown))
    )
    return F.when(bad, diagnosis)


def _mismatches(
    text: Column, row: Column, columns: T.StructType, path: str, shown: str, depth_left: int
) -> Iterator[Column]:
    """For each object of the value, an array of texts: one for each member that is present and was not used."""
    types: Column = F.create_map(
        *(F.lit(part) for field in columns.fields for part in (field.name, field.dataType.simpleString()))
    )
    raw = F.from_json(F.get_json_object(text, path), "map<string,string>")
    taken = F.from_json(F.to_json(row), "map<string,string>")

    def not_taken(entry: Column) -> Column:
        name = entry.getField("key")
        return entry.getField("value").isNotNull() & types[name].isNotNull() & taken[name].isNull()

    def told(entry: Column) -> Column:
        name, value = entry.getField("key"), entry.getField("value")
        found = F.substring(value, 1, SHOWN_CHARACTERS_MAX)
        return F.concat(F.lit(f"{shown}."), name, F.lit(": expected "), types[name], F.lit(", found "), found)

    entries = F.when(row.isNotNull(), F.map_entries(raw))
    yield F.coalesce(
        F.transform(F.filter(entries, not_taken), told), F.array().cast(T.ArrayType(T.StringType()))
    )
    for field in columns.fields:
        # Spark's paths have no way to write such a name.
        if isinstance(field.dataType, T.StructType) and depth_left and "'" not in field.name:
            inner, inner_shown = f"{path}['{field.name}']", f"{shown}.{field.name}"
            yield from _mismatches(
                text, row.getField(field.name), field.dataType, inner, inner_shown, depth_left - 1
            )


def _missing(row: Column, columns: T.StructType, shown: str, depth_left: int) -> Iterator[tuple[Column, str]]:
    """For each part that must not be null, whether it is, and the text that says so."""
    for field in columns.fields:
        value, here = row.getField(field.name), f"{shown}.{field.name}"
        if not field.nullable:
            yield row.isNotNull() & value.isNull(), f"{here}: missing"
        if isinstance(field.dataType, T.StructType) and depth_left:
            yield from _missing(value, field.dataType, here, depth_left - 1)
