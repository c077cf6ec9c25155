"""Values to columns and back through Spark; schemas of JSON."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.errors import InvalidConfig
from barnabas.spark.formats.columns import FormatSpec, decode, encode
from barnabas.spark.formats.json import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JSON_SCHEMA = {
    "type": "object",
    "required": ["id", "at"],
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date-time"},
        "price": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "extra": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "buyer": {"$ref": "#/$defs/person"},
    },
    "$defs": {"person": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
}


def test_json_schema_is_columns() -> None:
    columns = parse_schema(json.dumps(JSON_SCHEMA))
    assert columns.simpleString() == (
        "struct<id:bigint,at:timestamp,price:double,tags:array<string>,extra:map<string,boolean>,"
        "buyer:struct<name:string>>"
    )
    assert [field.name for field in columns if not field.nullable] == ["id", "at"]
    assert parse_schema(columns.json()) == columns


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ('{"type": "object"', "not JSON"),
        ('{"type": "array", "items": {"type": "string"}}', "must describe an object"),
        ('{"type": "object"}', "an object whose parts are not described"),
        (
            '{"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}',
            r"\$\.a must have one type",
        ),
        ('{"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}', r"\$\.a refers to #/\$defs/x"),
        ('{"type": "object", "properties": {"a": {"$ref": "#"}}}', r"deeper than 64|refers to"),
        ('{"type": "struct", "fields": 7}', "not a schema of Spark's"),
    ],
)
def test_json_schemas_that_are_no_columns(schema: str, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        parse_schema(schema)


def frame(spark: SparkSession, values: list[bytes | str | None]) -> DataFrame:
    data = [value.encode() if isinstance(value, str) else value for value in values]
    return spark.createDataFrame(pa.table({"value": pa.array(data, pa.binary()), "n": range(len(data))}))


JSON_CASES: list[tuple[bytes | str | None, str | None]] = [
    ('{"id":1,"b":{"c":2,"d":"x"},"l":[1,2],"t":"2024-01-01T00:00:00Z"}', None),
    ('{"id":1,"b":null,"unknown":{}}', None),
    (' {"id":1,"id":2} ', None),
    ('{"id":"x","b":{"c":"q","d":"x"}}', "$.id: expected int, found x; $.b.c: expected int, found q"),
    ('{"id":1.5}', "$.id: expected int, found 1.5"),
    ('{"id":99999999999}', "$.id: expected int, found 99999999999"),
    ('{"id":1,"l":[1,"x"]}', '$.l: expected array<int>, found [1,"x"]'),
    ('{"id":1,"m":{"k":"v"}}', '$.m: expected map<string,int>, found {"k":"v"}'),
    ('{"id":1,"b":7}', "$.b: expected struct<c:int,d:string>, found 7"),
    ('{"id":1,"t":"noon"}', "$.t: expected timestamp, found noon"),
    ('{"id":1,"id":"x","id":"y"}', 'not a value of the schema: {"id":1,"id":"x","id":"y"}'),
    ('{"id":null}', "$.id: missing"),
    ("{}", "$.id: missing"),
    ("null", "not a JSON object: null"),
    ("7", "not a JSON object: 7"),
    ('[{"id":1}]', 'not a JSON object: [{"id":1}]'),
    ("", "not JSON: "),
    ('{"id":1', 'not JSON: {"id":1'),
    ('{"id":1}\n{"id":2}\n', 'not JSON: {"id":1}\n{"id":2}\n'),
    ('{"id":1} more', 'not JSON: {"id":1} more'),
    ('{"id":1,"s":"}{"}', None),
    ('{"id":1} {"id":2}', 'not JSON: {"id":1} {"id":2}'),
    (b'{"id":1,"s":"\xff"}', "not UTF-8"),
    (None, "there is no value (null)"),
]


def test_json_values(spark: SparkSession) -> None:
    spec = FormatSpec(
        kind="json",
        schema="id int NOT NULL, b struct<c:int,d:string>, l array<int>, t timestamp, m map<string,int>, s string",
    )
    decoded = decode(frame(spark, [value for value, _ in JSON_CASES]), "value", spec)
    assert decoded.columns == ["value", "n", "id", "b", "l", "t", "m", "s", "_error"]
    rows = sorted(decoded.collect(), key=lambda row: row.n)
    assert [(row.value and bytes(row.value), row["_error"]) for row in rows] == [
        (value.encode() if isinstance(value, str) else value, error) for value, error in JSON_CASES
    ]
    first = rows[0]
    assert (first.id, first.b.asDict(), first.l, first.t) == (
        1,
        {"c": 2, "d": "x"},
        [1, 2],
        datetime.datetime(2024, 1, 1),  # noqa: DTZ001
    )
    good = decode(spark.range(1).selectExpr("string(id) value"), "value", spec).where("_error IS NULL")
    plan = good._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_json(StructField(id") == 1, "a filter must not parse again"


def test_json_behind_a_registrys_header(spark: SparkSession, tmp_path: Path) -> None:
    spec = FormatSpec(kind="json", schema="id int", registry=str(tmp_path), schema_id=258)
    values = encode(spark.range(1).selectExpr("cast(id + 7 as int) id"), spec)
    assert [bytes(row.value) for row in values.collect()] == [b'\x00\x00\x00\x01\x02{"id":7}']
    rows = decode(frame(spark, [b'\x00\x00\x00\x01\x02{"id":7}', b"\x00\x01", b'x{"id":7}']), "value", spec)
    assert [(row.id, row["_error"]) for row in sorted(rows.collect(), key=lambda row: row.n)] == [
        (7, None),
        (None, "too short for the registry's header of 5 bytes"),
        (None, "byte 0 is not the registry's magic 0"),
    ]


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {
                "name": "amount",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "tags", "type": {"type": "map", "values": "string"}},
            {"name": "lines", "type": {"type": "array", "items": ["null", "int"]}},
            {"name": "level", "type": "int", "default": 4},
        ],
    }
)


def test_avro_there_and_back(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "12.avsc").write_text(AVRO)
    rows = spark.sql(
        """SELECT cast(id as int) id, timestamp'2024-01-01 00:00:00.123' at, cast(id / 4 as decimal(9, 2)) amount,
           map('k', string(id)) tags, array(1, null) lines, 'key' key, 'left out' other FROM range(3)"""
    )
    for registry, schema_id in ((None, None), (str(tmp_path), 12)):
        spec = FormatSpec(kind="avro", schema=AVRO, registry=registry, schema_id=schema_id)
        values = encode(rows, spec)
        assert values.columns == ["key", "value"]
        [*found] = (
            decode(values.repartition(1), "value", spec).where("_error IS NULL").orderBy("id").collect()
        )
        assert [(row.key, row.id, float(row.amount), row.tags, row.lines, row.level) for row in found] == [
            ("key", n, n / 4, {"k": str(n)}, [1, None], 4) for n in range(3)
        ]
        assert found[0].at == datetime.datetime(2024, 1, 1, 0, 0, 0, 123_000)  # noqa: DTZ001
    bad = decode(frame(spark, [b"\x00\x00\x00\x00\x0c\x02"]), "value", spec, into="order")
    [row] = bad.collect()
    assert bad.columns == ["value", "n", "order", "_error"]
    assert row.order.id is None
    assert row["_error"].startswith("not a value of its Avro schema at byte 6 of 6")


def test_text_and_bytes(spark: SparkSession) -> None:
    rows = frame(spark, ["grüße", b"\xff", None])
    texts = decode(rows, "value", FormatSpec(kind="string")).orderBy("n").collect()
    assert [row["_error"] for row in texts] == [None, "not UTF-8", "there is no value (null)"]
    assert texts[0].text == "grüße"
    data = decode(rows, "value", FormatSpec(kind="bytes", schema="raw")).orderBy("n").collect()
    assert [row["_error"] for row in data] == [None, None, "there is no value (null)"]
    assert bytes(data[1].raw) == b"\xff"
    numbers = spark.range(1).selectExpr("id + 5 AS text", "string(id) AS key")
    assert encode(numbers, FormatSpec(kind="string")).collect()[0].asDict() == {"key": "0", "value": "5"}


def refusals() -> list[tuple[FormatSpec, str]]:
    return [
        (FormatSpec(kind="json"), "JSON values need one"),
        (FormatSpec(kind="json", schema="id bigint, value string"), "column 'value' of the json values"),
        (FormatSpec(kind="json", schema="id bigints"), "not Spark's DDL"),
        (FormatSpec(kind="avro"), "Avro values need one"),
        (FormatSpec(kind="avro", schema="{"), "not an Avro schema"),
        (FormatSpec(kind="avro", registry="/nowhere/at/all", schema_id=1), "neither an http"),
        (FormatSpec(kind="avro", registry="/nowhere/at/all"), "which of the registry's schemas"),
    ]


def test_specs_that_cannot_be_read_by(spark: SparkSession) -> None:
    rows = frame(spark, [b""])
    for spec, told in refusals():
        with pytest.raises(InvalidConfig, match=told):
            decode(rows, "value", spec)


def test_rows_that_cannot_be_written(spark: SparkSession) -> None:
    rows = spark.sql("SELECT '1' id, 2 other")
    cases: list[tuple[FormatSpec, dict[str, Any], str]] = [
        (FormatSpec(kind="avro", schema=AVRO), {}, "column 'id' is string, the Avro schema has bigint"),
        (
            FormatSpec(kind="avro", schema=AVRO),
            {"columns": ["other"]},
            "'other' is not a field of the Avro schema",
        ),
        (FormatSpec(kind="avro", registry="http://127.0.0.1:1"), {}, "subject: values in the registry's"),
        (FormatSpec(kind="json", schema="id int, gone int"), {}, "gone, which the rows have not"),
        (FormatSpec(kind="string"), {}, "the rows have no column 'value', but id, other"),
    ]
    for spec, options, told in cases:
        with pytest.raises(InvalidConfig, match=told):
            encode(rows, spec, **options)
