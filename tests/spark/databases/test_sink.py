"""Databases without Spark: URLs, names, types, and a batch's writer on SQLite and on PostgreSQL."""

from __future__ import annotations

import datetime
import decimal
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812

from barnabas.errors import (
    ConcurrentTransactions,
    InvalidConfig,
    InvalidRecord,
    NetworkException,
    OutOfOrderSequenceNumber,
    PolicyViolation,
    ResourceNotFound,
)
from barnabas.spark.databases.connection import (
    connected,
    hide_password,
    identifier,
    literal,
    parse_table,
    parse_url,
    rows_of,
)
from barnabas.spark.databases.sink import BatchWriter, DatabaseSink
from barnabas.spark.databases.types import (
    Kind,
    TableColumn,
    check_columns,
    create_statement,
    takes,
    type_to_create,
)
from tests.spark.database_fixtures import run
from tests.spark.postgres_server import PASSWORD


def test_urls_and_their_passwords() -> None:
    assert parse_url("postgresql://u:p@h/d").kind == "postgresql"
    assert parse_url("sqlite:///a/b.db").path == "a/b.db"
    assert parse_url("sqlite:////a/b%20c.db").path == "/a/b c.db"
    secret = parse_url("postgresql://u:p%40ss@h/d?sslpassword=other%21&x=1")
    assert "p%40ss" not in repr(secret)
    assert secret.shown == "postgresql://u:***@h/d?sslpassword=***&x=1"
    assert hide_password("it was p@ss or other!", secret.url) == "it was *** or ***"
    for bad in ("mysql://u:geheim@h/d", "sqlite://x", "sqlite:///"):
        with pytest.raises(InvalidConfig, match="neither postgresql") as raised:
            parse_url(bad)
        assert "geheim" not in str(raised.value)


def test_names_are_quoted() -> None:
    assert identifier('a"b') == '"a""b"'
    assert literal("o'clock") == "'o''clock'"
    assert parse_table("sales.Orders").quoted == '"sales"."Orders"'
    assert parse_table('"a.b"').quoted == '"a.b"'
    assert parse_table('s."x""y"').quoted == '"s"."x""y"'
    for bad in ("", "a.b.c", 'a"b', "."):
        with pytest.raises(InvalidConfig, match="table"):
            parse_table(bad)


@pytest.mark.parametrize(
    ("kind", "postgresql", "sqlite"),
    [
        (T.LongType(), "bigint", "INTEGER"),
        (T.ByteType(), "smallint", "INTEGER"),
        (T.StringType(), "text", "TEXT"),
        (T.DecimalType(12, 2), "numeric(12,2)", "TEXT"),
        (T.TimestampType(), "timestamp with time zone", "TIMESTAMP"),
        (T.ArrayType(T.IntegerType()), "integer[]", "TEXT"),
        (T.ArrayType(T.ArrayType(T.IntegerType())), "jsonb", "TEXT"),
        (T.MapType(T.StringType(), T.LongType()), "jsonb", "TEXT"),
        (T.StructType([T.StructField("a", T.LongType())]), "jsonb", "TEXT"),
        (T.DayTimeIntervalType(), "text", "TEXT"),
    ],
)
def test_types_to_create(kind: T.DataType, postgresql: str, sqlite: str) -> None:
    assert type_to_create(kind, "postgresql") == postgresql
    assert type_to_create(kind, "sqlite") == sqlite
    assert takes(postgresql, kind, "postgresql")


@pytest.mark.parametrize(
    ("column", "kind", "expected"),
    [
        ("integer", T.LongType(), True),
        ("numeric(10,2)", T.DecimalType(8, 2), True),
        ("numeric(10,2)", T.DecimalType(8, 3), False),
        ("numeric(10,2)", T.DoubleType(), False),
        ("numeric", T.DoubleType(), True),
        ("numeric(10,2)", T.LongType(), True),
        ("boolean", T.LongType(), False),
        ("uuid", T.StringType(), True),
        ("character varying(5)", T.StringType(), True),
        ("timestamp(3) without time zone", T.TimestampType(), True),
        ("integer", T.DoubleType(), False),
        ("bigint[]", T.ArrayType(T.IntegerType()), True),
        ("text", T.ArrayType(T.IntegerType()), False),
        ("json", T.MapType(T.StringType(), T.LongType()), True),
        ("bytea", T.StructType(), False),
        ("text", T.BinaryType(), False),
    ],
)
def test_what_a_column_takes(column: str, kind: T.DataType, expected: bool) -> None:
    assert takes(column, kind, "postgresql") is expected


def test_mismatches_name_column_and_types() -> None:
    table = parse_table("t")
    columns = T.StructType([T.StructField("id", T.LongType()), T.StructField("at", T.DoubleType())])
    found = [
        TableColumn(name="id", type="bigint", optional=True),
        TableColumn(name="at", type="date", optional=True),
    ]
    with pytest.raises(InvalidConfig, match="column 'at' is date and the rows' is double"):
        check_columns(table, found, columns, "postgresql")
    with pytest.raises(InvalidConfig, match="no column 'at', which the rows have; it has id"):
        check_columns(table, found[:1], columns, "postgresql")
    with pytest.raises(InvalidConfig, match="column 'need' has no default"):
        check_columns(
            table,
            [*found[:1], TableColumn(name="need", type="text", optional=False)],
            T.StructType(columns.fields[:1]),
            "postgresql",
        )


def test_sinks_that_cannot_be() -> None:
    for options, told in (
        ({"mode": "upsert"}, "an upsert needs the columns"),
        ({"keys": ("id",)}, "for mode upsert only"),
        ({"mode": "replace"}, "neither append nor upsert"),
    ):
        with pytest.raises(InvalidConfig, match=told):
            DatabaseSink("sqlite:///x", "t", **options)


SCHEMA = T.StructType([T.StructField("id", T.LongType()), T.StructField("name", T.StringType())])


def prepared(sink: DatabaseSink, schema: T.StructType = SCHEMA) -> DatabaseSink:
    sink._prepared = (schema, sink._prepare(schema))
    return sink


def writer(sink: DatabaseSink, batch_id: int, query_id: str = "q") -> BatchWriter:
    assert sink._prepared is not None
    schema, types = sink._prepared
    made = BatchWriter(
        database=sink._database,
        table=sink._table,
        keys=sink._keys,
        columns=schema.fieldNames(),
        types=types,
        batch_id=batch_id,
        query_id=query_id,
        lock_timeout_s=60,
    )
    found: BatchWriter = pickle.loads(pickle.dumps(made))
    return found


def batches(*rows: tuple[int, str]) -> list[pa.RecordBatch]:
    """A record batch a row: an ingest of many."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    return [pa.record_batch([[number], [name]], schema=schema) for number, name in rows]


def content(url: str, table: str = "t", order: str = "1, 2") -> list[tuple[Any, ...]]:
    with connected(parse_url(url)) as connection:
        return rows_of(connection, f"SELECT * FROM {identifier(table)} ORDER BY {order}")


def written(found: Iterator[pa.RecordBatch]) -> int:
    [batch] = list(found)
    rows: int = batch.column(0)[0].as_py()
    return rows


def test_batch_is_written_once(database_url: str) -> None:
    sink = prepared(DatabaseSink(database_url, "t"))
    assert written(writer(sink, 0)(batches((1, "a"), (2, "b")))) == 2
    assert written(writer(sink, 0)(iter(batches((1, "a"), (2, "b"))))) == 0
    assert written(writer(sink, 1)([])) == 0
    assert written(writer(sink, 2)(batches((3, "c")))) == 1
    with pytest.raises(OutOfOrderSequenceNumber, match="batch 1 of query q is refused, since batch 2"):
        list(writer(sink, 1)(batches((9, "z"))))
    # A query of its own has numbers of its own.
    assert written(writer(sink, 0, "other")(batches((4, "d")))) == 1
    assert content(database_url) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_repeated_batch_reads_its_rows_all_the_same(database_url: str) -> None:
    sink = prepared(DatabaseSink(database_url, "t"))
    list(writer(sink, 0)(batches((1, "a"))))
    source = iter(batches((1, "a"), (2, "b")))
    list(writer(sink, 0)(source))
    assert next(source, None) is None


def test_upsert_takes_the_last_of_each_key(database_url: str) -> None:
    sink = prepared(DatabaseSink(database_url, "t", mode="upsert", keys=["id"]))
    list(writer(sink, 0)(batches((1, "a"), (2, "b"), (1, "a2"), (1, "a3"))))
    assert content(database_url) == [(1, "a3"), (2, "b")]
    list(writer(sink, 1)(batches((2, "b2"), (3, "c"))))
    assert content(database_url) == [(1, "a3"), (2, "b2"), (3, "c")]


def test_upsert_of_keys_alone(database_url: str) -> None:
    keys_alone = T.StructType(SCHEMA.fields[:1])
    sink = prepared(DatabaseSink(database_url, "t", mode="upsert", keys=["id"]), keys_alone)
    rows = [pa.record_batch([pa.array([5, 5, 6])], names=["id"])]
    list(writer(sink, 0)(rows))
    list(writer(sink, 1)(rows))
    assert content(database_url, order="1") == [(5,), (6,)]


def test_failure_among_the_rows_leaves_nothing(database_url: str) -> None:
    sink = prepared(DatabaseSink(database_url, "t"))

    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches((1, "a"))
        raise RuntimeError("the source is gone")

    with pytest.raises(Exception, match="the source is gone"):
        list(writer(sink, 0)(failing()))
    assert content(database_url) == []
    assert written(writer(sink, 0)(batches((1, "a")))) == 1
    assert content(database_url) == [(1, "a")]


def test_constraint_of_the_table_is_told(database_url: str) -> None:
    run(database_url, "CREATE TABLE t (id bigint CHECK (id > 0), name text DEFAULT 'x')")
    sink = prepared(DatabaseSink(database_url, "t"), T.StructType(SCHEMA.fields[:1]))
    with pytest.raises(InvalidRecord, match=r"(?i)check"):
        list(writer(sink, 0)([pa.record_batch([pa.array([-5])], names=["id"])]))
    list(writer(sink, 0)([pa.record_batch([pa.array([5])], names=["id"])]))
    assert content(database_url) == [(5, "x")]


def test_upsert_without_a_unique_index_is_refused(database_url: str) -> None:
    run(database_url, "CREATE TABLE t (id bigint, name text, UNIQUE (id, name))")
    with pytest.raises(InvalidConfig, match="no unique index on id; create one"):
        prepared(DatabaseSink(database_url, "t", mode="upsert", keys=["id"]))
    prepared(DatabaseSink(database_url, "t", mode="upsert", keys=["name", "id"]))
    with pytest.raises(InvalidConfig, match="keys: the rows have no column 'missing'"):
        prepared(DatabaseSink(database_url, "t", mode="upsert", keys=["missing"]))


def test_two_writers_of_one_batch(database_url: str) -> None:
    """The one that was thought dead and the new one: whoever comes second waits, and leaves its rows out."""
    sink = prepared(DatabaseSink(database_url, "t"))
    first_is_in, results = threading.Event(), []

    def slow() -> Iterator[pa.RecordBatch]:
        yield from batches((1, "a"))
        first_is_in.set()
        second.start()
        # The second one waits in the database by now, or comes later: either way it has to find the batch there.
        second.join(0.2)
        yield from batches((2, "b"))

    def write_second() -> None:
        first_is_in.wait(60)
        results.append(written(writer(sink, 0)(iter(batches((1, "a"), (2, "b"))))))

    second = threading.Thread(target=write_second)
    results.append(written(writer(sink, 0)(slow())))
    second.join(60)
    assert sorted(results) == [0, 2]
    assert content(database_url) == [(1, "a"), (2, "b")]


KILLED_WRITER = """
import os, pickle, signal, sys
import pyarrow as pa
from barnabas.spark.databases.sink import BatchWriter

class Dying(BatchWriter):
    def commit(self, connection):
        if MOMENT == "after":
            super().commit(connection)
        os.kill(os.getpid(), signal.SIGKILL)

MOMENT = sys.argv[1]
writer = pickle.load(sys.stdin.buffer)
writer.__class__ = Dying
list(writer([pa.record_batch([pa.array([1, 2]), pa.array(["a", "b"])], names=["id", "name"])]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_writer_killed_around_its_commit(database_url: str, moment: str) -> None:
    sink = prepared(DatabaseSink(database_url, "t"))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_WRITER, moment],
        input=pickle.dumps(writer(sink, 0)),
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(content(database_url)) == (0 if moment == "before" else 2)
    assert written(writer(sink, 0)(batches((1, "a"), (2, "b")))) == (2 if moment == "before" else 0)
    assert content(database_url) == [(1, "a"), (2, "b")]


@pytest.mark.slow
def test_types_through_postgresql(postgres: str) -> None:
    """What Spark hands over arrives as what the created table says, and in tables made by others."""
    schema = T.StructType(
        [
            T.StructField("small", T.ByteType()),
            T.StructField("ok", T.BooleanType()),
            T.StructField("ratio", T.FloatType()),
            T.StructField("amount", T.DecimalType(12, 2)),
            T.StructField("raw", T.BinaryType()),
            T.StructField("day", T.DateType()),
            T.StructField("at", T.TimestampType()),
            T.StructField("local", T.TimestampNTZType()),
            T.StructField("tags", T.ArrayType(T.StringType())),
            T.StructField("more", T.MapType(T.StringType(), T.LongType())),
        ]
    )
    moment = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    row = pa.record_batch(
        {
            "small": pa.array([1], pa.int8()),
            "ok": pa.array([True]),
            "ratio": pa.array([0.5], pa.float32()),
            "amount": pa.array([decimal.Decimal("-12.30")], pa.decimal128(12, 2)),
            "raw": pa.array([b"\x00\xff"]),
            "day": pa.array([moment.date()]),
            "at": pa.array([moment], pa.timestamp("us", "Europe/Berlin")),
            "local": pa.array([moment.replace(tzinfo=None)], pa.timestamp("us")),
            "tags": pa.array([["a", None]], pa.list_(pa.string())),
            "more": pa.array(['{"x": 1}']),
        }
    )
    others = (
        "small numeric(5,1), ok boolean, ratio double precision, amount numeric(20,4), raw bytea, "
        "day timestamp, at timestamp, local timestamp, tags varchar(9)[], more json, extra int DEFAULT 7"
    )
    run(postgres, f"CREATE TABLE made_by_others ({others})")
    for table in ("made_by_us", "made_by_others"):
        sink = prepared(DatabaseSink(postgres, table), schema)
        list(writer(sink, 0)([row]))
        with connected(parse_url(postgres)) as connection:
            [found] = rows_of(
                connection,
                "SELECT small::text, ok, ratio::float8, amount::text, raw, day::text, at::text, local::text, "
                f"tags, more::text FROM {table}",
            )
        assert found[1:3] == (True, 0.5)
        assert found[4] == b"\x00\xff"
        assert found[8] == ["a", None]
        assert (decimal.Decimal(found[3]), found[9]) == (decimal.Decimal("-12.30"), '{"x": 1}')
        assert found[5].startswith("2024-02-29")
        assert found[6].startswith("2024-02-29 12:00:00")
        assert found[7] == "2024-02-29 12:00:00"


@pytest.mark.slow
def test_errors_of_postgresql_hide_the_password(postgres: str) -> None:
    secret = "An0ther-pass"
    for bad, kind, told in (
        (postgres.replace(PASSWORD, secret), NetworkException, "password authentication failed"),
        (postgres.replace(PASSWORD, f"{secret} "), NetworkException, "Failed to connect"),
        (f"postgresql://barnabas:{secret}@127.0.0.1:1/x", NetworkException, "Connection refused"),
        (postgres.replace("/postgres", "/nowhere"), NetworkException, "does not exist"),
    ):
        with pytest.raises(kind, match=told) as raised:
            prepared(DatabaseSink(bad, "t"))
        shown = "".join(map(str, (raised.value, raised.value.__cause__)))
        assert secret not in shown
        assert PASSWORD not in shown
    with (
        pytest.raises(ResourceNotFound, match="does not exist"),
        connected(parse_url(postgres)) as connection,
    ):
        rows_of(connection, "SELECT * FROM nowhere_at_all")


@pytest.mark.slow
def test_upsert_by_a_key_of_another_type(postgres: str) -> None:
    run(postgres, "CREATE TABLE by_uuid (id uuid PRIMARY KEY, name varchar(3), kept int DEFAULT 5)")
    schema = T.StructType([T.StructField("id", T.StringType()), T.StructField("name", T.StringType())])
    sink = prepared(DatabaseSink(postgres, "by_uuid", mode="upsert", keys=["id"]), schema)
    key = "9f8d1f0e-7f4c-4c7e-9a39-4a3f5a3ab8a0"
    rows = pa.record_batch({"id": [key, key.upper(), key], "name": ["a", "b", "c"]})
    list(writer(sink, 0)([rows]))
    with connected(parse_url(postgres)) as connection:
        assert rows_of(connection, "SELECT id::text, name, kept FROM by_uuid") == [(key, "c", 5)]
    with pytest.raises(InvalidRecord, match="invalid input syntax for type uuid"):
        list(writer(sink, 1)([pa.record_batch({"id": ["x"], "name": ["a"]})]))


@pytest.mark.slow
def test_role_that_may_only_insert(postgres: str) -> None:
    prepared(DatabaseSink(postgres, "given"))
    run(
        postgres,
        "CREATE ROLE clerk LOGIN PASSWORD 'clerk'",
        "GRANT INSERT ON given TO clerk",
        "GRANT SELECT, INSERT, UPDATE ON barnabas_batches TO clerk",
    )
    clerk = postgres.replace(f"barnabas:{PASSWORD}", "clerk:clerk")
    sink = prepared(DatabaseSink(clerk, "given"))
    assert written(writer(sink, 0)(batches((1, "a")))) == 1
    with pytest.raises(PolicyViolation, match="permission denied"):
        prepared(DatabaseSink(clerk, "mine"))


@pytest.mark.slow
def test_many_create_the_same_table(postgres: str) -> None:
    """PostgreSQL lets all but one fail that create a table at once, IF NOT EXISTS or not."""
    sinks = [DatabaseSink(postgres, "wanted_by_many", mode="upsert", keys=["id"]) for _ in range(8)]
    with ThreadPoolExecutor(len(sinks)) as pool:
        found = list(pool.map(lambda sink: sink._prepare(SCHEMA), sinks))
    assert found == [["bigint", "text"]] * len(sinks)


@pytest.mark.slow
def test_lock_that_is_held_too_long(database_url: str) -> None:
    sink = prepared(DatabaseSink(database_url, "t"))
    blocked = writer(sink, 0)
    blocked._lock_timeout_s = 1

    def holding() -> Iterator[pa.RecordBatch]:
        yield from batches((1, "a"))
        with pytest.raises(ConcurrentTransactions, match="lock"):
            list(blocked(batches((1, "a"))))
        yield from batches((2, "b"))

    assert written(writer(sink, 0)(holding())) == 2


def test_created_tables_have_their_keys() -> None:
    for kind, bigint in (("postgresql", "bigint"), ("sqlite", "INTEGER")):
        database: Kind = kind  # type: ignore[assignment]
        assert create_statement(parse_table("t"), SCHEMA, ["id"], database).lower() == (
            f'create table if not exists "t" ("id" {bigint} not null, "name" text, primary key ("id"))'.lower()
        )
