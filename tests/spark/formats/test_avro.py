"""Avro without a session: schemas as columns and back, values through decoder and encoder, registries."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from barnabas.errors import InvalidConfig, InvalidRecord, NetworkException, ResourceNotFound
from barnabas.spark.formats import registry as formats_registry
from barnabas.spark.formats.avro import AvroDecoder, AvroEncoder, avro_schema, spark_schema
from barnabas.spark.formats.registry import WIRE_HEADER, location_shown, open_registry, registered_schema

UTC = datetime.UTC


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


EVERYTHING = record(
    ("id", "long"),
    ("small", "int"),
    ("ok", "boolean"),
    ("ratio", "float"),
    ("price", "double"),
    ("raw", "bytes"),
    ("note", ["null", "string"]),
    ("amount", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}),
    ("fixed_amount", {"type": "fixed", "name": "F8", "size": 8, "logicalType": "decimal", "precision": 9}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("at_ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("at_us", {"type": "long", "logicalType": "timestamp-micros"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("uuid", {"type": "string", "logicalType": "uuid"}),
    ("clock", {"type": "int", "logicalType": "time-millis"}),
    ("state", {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}),
    ("state_before", ["null", "State"]),
    ("digest", {"type": "fixed", "name": "D4", "size": 4}),
    ("tags", {"type": "array", "items": "string"}),
    ("counts", {"type": "map", "values": ["null", "int"]}),
    ("lines", {"type": "array", "items": record(("sku", "string"), ("n", "int"), name="Line")}),
    ("best", ["null", "Line"]),
    ("number", ["null", "int", "long"]),
    ("measure", ["int", "double"]),
)
DDL = (
    "struct<id:bigint,small:int,ok:boolean,ratio:float,price:double,raw:binary,note:string,amount:decimal(12,2),"
    "fixed_amount:decimal(9,0),day:date,at_ms:timestamp,at_us:timestamp,local:timestamp_ntz,uuid:string,clock:int,"
    "state:string,state_before:string,digest:binary,tags:array<string>,counts:map<string,int>,"
    "lines:array<struct<sku:string,n:int>>,best:struct<sku:string,n:int>,number:bigint,measure:double>"
)
ROW: dict[str, Any] = {
    "id": 2**40,
    "small": -7,
    "ok": True,
    "ratio": 0.5,
    "price": 1e300,
    "raw": b"\x00\xff",
    "note": None,
    "amount": decimal.Decimal("-1234.50"),
    "fixed_amount": decimal.Decimal("99"),
    "day": datetime.date(1969, 12, 31),
    "at_ms": datetime.datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC),
    "at_us": datetime.datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "local": datetime.datetime(2024, 3, 31, 2, 30, tzinfo=UTC).replace(tzinfo=None),
    "uuid": "9f8d1f0e-7f4c-4c7e-9a39-4a3f5a3ab8a0",
    "clock": 3_600_000,
    "state": "DONE",
    "state_before": "NEW",
    "digest": b"abcd",
    "tags": ["a", "b"],
    "counts": {"x": 1, "y": None},
    "lines": [{"sku": "s", "n": 1}],
    "best": {"sku": "t", "n": 2},
    "number": 5,
    "measure": 2.5,
}


def text(schema: Any) -> tuple[str]:
    return (json.dumps(schema),)


def encoded(schema: Any, row: dict[str, Any]) -> bytes:
    """A value written by fastavro itself."""
    plain = json.loads(json.dumps(schema).replace('"logicalType": "time-millis"', '"doc": ""'))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(plain), row)
    return body.getvalue()


def decode(
    values: list[bytes | None], reader: Any, writer: Any = None, registry: str = ""
) -> list[dict[str, Any]]:
    decoder = AvroDecoder(reader=text(reader), writer=text(writer or reader), registry=registry)
    decoder = pickle.loads(pickle.dumps(decoder))
    rows: list[dict[str, Any]] = decoder(pa.array(values, pa.binary())).to_pylist(maps_as_pydicts="strict")
    return rows


def test_every_type_has_its_column() -> None:
    columns = spark_schema(text(EVERYTHING))
    assert columns.simpleString() == DDL
    assert [f.name for f in columns if f.nullable] == ["note", "state_before", "best", "number"]
    assert isinstance(columns["counts"].dataType, T.MapType)
    assert columns["counts"].dataType.valueContainsNull


def test_values_of_every_type_come_out_as_they_went_in() -> None:
    [row] = decode([encoded(EVERYTHING, ROW)], EVERYTHING)
    assert row == {**ROW, "_error": None}


def test_encoder_writes_what_fastavro_writes() -> None:
    rows = pa.array([ROW], _arrow_type())
    [value] = AvroEncoder(text(EVERYTHING), None)(rows).to_pylist()
    assert value == encoded(EVERYTHING, ROW)
    [framed] = AvroEncoder(text(EVERYTHING), 77)(rows).to_pylist()
    assert framed == b"\x00\x00\x00\x00\x4d" + value


def _arrow_type() -> pa.DataType:
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(spark_schema(text(EVERYTHING)), timezone="UTC")


def test_columns_become_a_schema_that_gives_the_same_columns() -> None:
    names = ["id", "note", "amount", "day", "at_us", "local", "tags", "counts", "lines", "best", "raw", "ok"]
    columns = T.StructType([spark_schema(text(EVERYTHING))[name] for name in names])
    schema = avro_schema(columns)
    assert spark_schema(text(schema)) == columns
    fastavro.parse_schema(schema)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (T.StructField("a b", T.LongType()), "rename"),
        (T.StructField("m", T.MapType(T.IntegerType(), T.LongType())), "map<int,bigint> has no Avro type"),
        (T.StructField("v", T.VariantType()), "variant has no Avro type"),
    ],
)
def test_columns_that_avro_does_not_have(column: T.StructField, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        avro_schema(T.StructType([column]))


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("string", "must be a record, not string"),
        (record(("x", ["int", "string"])), r"Order\.x is a union of int, string"),
        (record(("next", ["null", "Order"])), r"Order\.next contains itself"),
        (
            record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 50})),
            "at most 38 digits, not 50",
        ),
        (record(("x", "no.such.Type")), "not an Avro schema"),
        ({"type": "record"}, "not an Avro schema"),
    ],
)
def test_schemas_without_columns(schema: Any, told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        spark_schema(text(schema))


def test_bad_values_are_told_apart_and_say_where() -> None:
    schema = record(("id", "long"), ("name", "string"))
    good = encoded(schema, {"id": 1, "name": "one"})
    rows = decode([good, good[:3], good + b"x", b"", None, b"\x02\x06\xff\xfe\xfd", good], schema)
    assert [row["id"] for row in rows] == [1, None, None, None, None, None, 1]
    errors = [row["_error"] for row in rows]
    assert errors[0] is None
    assert errors[6] is None
    assert errors[1].startswith("not a value of its Avro schema at byte 3 of 3: ")
    assert "ends at byte 5 of 6" in errors[2]
    assert "at byte 0 of 0" in errors[3]
    assert errors[4] == "there is no value (null)"
    assert "UnicodeDecodeError" in errors[5]


def test_reader_schema_evolves() -> None:
    writer = record(("id", "int"), ("gone", "string"), ("was", "string"))
    reader = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "added", "type": ["null", "string"], "default": None},
            {"name": "level", "type": "int", "default": 3},
            {"name": "now", "aliases": ["was"], "type": "string"},
        ],
    }
    value = encoded(writer, {"id": 9, "gone": "x", "was": "w"})
    assert decode([value], reader, writer) == [
        {"id": 9, "added": None, "level": 3, "now": "w", "_error": None}
    ]


def test_plain_longs_are_read_in_the_readers_unit() -> None:
    writer = record(("at", "long"))
    reader = record(("at", {"type": "long", "logicalType": "timestamp-millis"}))
    [row] = decode([encoded(writer, {"at": 1500})], reader, writer)
    assert row["at"] == datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)


def test_value_without_a_place_in_the_columns_is_bad_alone() -> None:
    """The writer's decimals are wider than the reader's: some values fit, some do not."""
    writer = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}))
    reader = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}))
    values: list[bytes | None] = [
        encoded(writer, {"d": decimal.Decimal(n)}) for n in ("1.25", "1234567.00", "-1.25")
    ]
    rows = decode(values, reader, writer)
    assert [row["d"] for row in rows] == [decimal.Decimal("1.25"), None, decimal.Decimal("-1.25")]
    assert [row["_error"] is None for row in rows] == [True, False, True]
    assert rows[1]["_error"].startswith("field d: does not fit decimal128(5, 2): ")


def test_row_that_does_not_fit_fails_by_name() -> None:
    schema = record(("id", "long"), ("name", "string"))
    rows = pa.array([{"id": 1, "name": None}], pa.struct([("id", pa.int64()), ("name", pa.string())]))
    with pytest.raises(InvalidRecord, match=r"does not fit the Avro schema.*name"):
        AvroEncoder(text(schema), None)(rows)


V1 = record(("id", "int"), ("name", "string"))
V2 = record(("id", "long"), ("name", "string"))
USES = record(("id", "long"), ("line", "shop.Line"), name="Uses")
LINE = {"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "sku", "type": "string"}]}


class Registry(BaseHTTPRequestHandler):
    """As much of a Schema Registry as its clients here see."""

    schemas: ClassVar[dict[int, dict[str, Any]]]
    log: ClassVar[list[str]]
    failures_left: ClassVar[int]

    def log_message(self, *arguments: Any) -> None:
        pass

    def _answer(self, status: int, body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        kind = type(self)
        kind.log.append(f"{self.path} {self.headers.get('Authorization', '')}".strip())
        if kind.failures_left:
            kind.failures_left -= 1
            return self._answer(503, {"message": "starting"})
        if self.path == "/subjects/shop.line/versions/1":
            return self._answer(200, {"schema": json.dumps(LINE)})
        if self.path == "/subjects/orders-value/versions/latest":
            return self._answer(200, {"id": 2, "schema": json.dumps(V2)})
        if self.path == "/schemas/ids/666":
            return self._answer(200, b"<html>")
        found = kind.schemas.get(int(self.path.rpartition("/")[2]))
        return self._answer(200, found) if found else self._answer(404, {"error_code": 40403})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).schemas[9] = {"schema": body["schema"]}
        self._answer(200, {"id": 9})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, type[Registry]]]:
    class Handler(Registry):
        schemas: ClassVar = {
            1: {"schema": json.dumps(V1)},
            2: {"schema": json.dumps(V2)},
            3: {
                "schema": json.dumps(USES),
                "references": [{"name": "shop.Line", "subject": "shop.line", "version": 1}],
            },
            4: {"schema": "{}", "schemaType": "PROTOBUF"},
        }
        log: ClassVar = []
        failures_left = 0

    monkeypatch.setattr(formats_registry, "BACKOFF_S", 0.0)
    # Another test's server may have had the same port.
    registered_schema.cache_clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", Handler
        server.shutdown()
        thread.join()


def framed(schema_id: int, body: bytes) -> bytes:
    return WIRE_HEADER.pack(0, schema_id) + body


def test_registry_names_the_writers_schema(registry: tuple[str, type[Registry]]) -> None:
    url, handler = registry
    values = [
        framed(1, encoded(V1, {"id": 1, "name": "a"})),
        framed(2, encoded(V2, {"id": 2**40, "name": "b"})),
        framed(404, b"\x00"),
        framed(4, b"\x00"),
        b"\x01\x00\x00\x00\x01",
        b"\x00\x00",
        framed(404, b"\x00"),
    ]
    rows = decode([*values], V2, registry=url)
    assert [(row["id"], row["name"]) for row in rows[:2]] == [(1, "a"), (2**40, "b")]
    errors = [row["_error"] for row in rows]
    assert errors[:2] == [None, None]
    assert errors[2].startswith("schema id 404 in bytes 1 to 4: ")
    assert "is of type PROTOBUF, not AVRO" in errors[3]
    assert errors[4] == "byte 0 is 1, not the registry's magic 0"
    assert errors[5] == "2 bytes, too short for the registry's header of 5"
    decode([*values], V2, registry=url)
    # Known schemas are asked for once, unknown ones once a batch.
    assert sorted(handler.log) == sorted(
        [f"/schemas/ids/{n}" for n in (1, 2)] + ["/schemas/ids/404"] * 2 + ["/schemas/ids/4"] * 2
    )


def test_registry_with_references(registry: tuple[str, type[Registry]]) -> None:
    url, _ = registry
    texts = registered_schema(url, 3)
    assert spark_schema(texts).simpleString() == "struct<id:bigint,line:struct<sku:string>>"
    inline = record(("id", "long"), ("line", LINE), name="Uses")
    value = framed(3, encoded(inline, {"id": 1, "line": {"sku": "s"}}))
    decoder = AvroDecoder(reader=texts, writer=texts, registry=url)
    assert decoder(pa.array([value])).to_pylist() == [{"id": 1, "line": {"sku": "s"}, "_error": None}]


def test_registry_subjects_and_logins(registry: tuple[str, type[Registry]]) -> None:
    url, handler = registry
    asked = open_registry(url.replace("//", "//ann:s3cret%21@"))
    assert asked.latest("orders-value") == 2
    assert handler.log == ["/subjects/orders-value/versions/latest Basic YW5uOnMzY3JldCE="]
    assert asked.enroll("orders-value", json.dumps(V1)) == 9
    assert registered_schema(url, 9) == (json.dumps(V1),)


def test_registry_that_fails_for_a_while(registry: tuple[str, type[Registry]]) -> None:
    url, handler = registry
    handler.failures_left = 2
    assert registered_schema(url, 2) == (json.dumps(V2),)
    handler.failures_left = 100
    with pytest.raises(NetworkException, match="cannot be reached: HTTP 503"):
        # No value is at fault: a batch fails rather than become errors.
        decode([framed(1, b"")], V2, registry=url + "/")
    handler.failures_left = 0
    with pytest.raises(InvalidConfig, match="does not answer as a Schema Registry"):
        registered_schema(url, 666)


def test_registry_nobody_answers_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats_registry, "BACKOFF_S", 0.0)
    with pytest.raises(NetworkException) as raised:
        open_registry("http://ann:s3cret@127.0.0.1:1").latest("x")
    assert "s3cret" not in str(raised.value)
    assert "http://127.0.0.1:1 cannot be reached" in str(raised.value)
    assert location_shown("https://a:b@host/x") == "https://host/x"


def test_directory_of_schemas(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text(json.dumps(V1))
    values: list[bytes | None] = [framed(1, encoded(V1, {"id": 1, "name": "a"})), framed(8, b"")]
    rows = decode(values, V2, registry=str(tmp_path))
    assert rows[0] == {"id": 1, "name": "a", "_error": None}
    assert "there is no file" in rows[1]["_error"]
    with pytest.raises(InvalidConfig, match="neither an http"):
        open_registry(str(tmp_path / "none"))
    with pytest.raises(InvalidConfig, match="no subjects"):
        open_registry(str(tmp_path)).latest("x")
    with pytest.raises(ResourceNotFound):
        registered_schema(str(tmp_path), 2)
