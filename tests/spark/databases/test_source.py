"""The source of databases without Spark: options, types, ranges, and readers on SQLite and PostgreSQL."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from barnabas.clock import ManualClock
from barnabas.errors import InvalidConfig, InvalidRecord, ResourceNotFound
from barnabas.spark.databases.connection import connected, execute, parse_url
from barnabas.spark.databases.read import (
    decimal_of,
    parse_options,
    split,
    split_predicates,
    sqlite_type,
    value_literal,
)
from barnabas.spark.databases.source import DatabaseDataSource, DatabaseReader, DatabaseStreamReader
from tests.spark.database_fixtures import run

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "option url is missing"),
        ({"url": "sqlite:///x"}, "either the option table or the option query"),
        ({"url": "sqlite:///x", "table": "t", "query": "q"}, "either the option table or the option query"),
        ({"url": "sqlite:///x", "table": "t", "dbtable": "t"}, "option dbtable: there is no such option"),
        ({"url": "sqlite:///x", "table": "t", "startingvalue": "1"}, "it is a value of growingColumn"),
        ({"url": "sqlite:///x", "table": "t", "partitions": "x"}, "'x' is not a number above 0"),
        ({"url": "sqlite:///x", "table": "t", "partitions": "2"}, "give one"),
        ({"url": "sqlite:///x", "table": "t", "maxrowspertrigger": "0"}, "'0' is not a number above 0"),
        ({"url": "sqlite:///x", "table": "t", "settleseconds": "soon"}, "not between 0 and 86400"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        parse_options(options)


def test_types_of_columns() -> None:
    assert decimal_of(-1) == T.DecimalType(38, 18)
    assert decimal_of(655366) == T.DecimalType(10, 2)
    assert decimal_of(((50 << 16) | 2) + 4) == T.StringType()
    assert sqlite_type("VARCHAR(10)") == T.StringType()
    assert sqlite_type("datetime") == T.TimestampType()
    assert sqlite_type("") is None
    assert value_literal("12", T.LongType(), parse_url("sqlite:///x")) == "12"
    with pytest.raises(InvalidConfig, match="not a value of a growing column of whole numbers"):
        value_literal("1; DROP TABLE t", T.LongType(), parse_url("sqlite:///x"))


def test_ranges_cover_everything_once() -> None:
    chooser = random.Random(8)
    for _ in range(200):
        low = chooser.randrange(-50, 50)
        high = low + chooser.randrange(0, 100)
        parts = chooser.randrange(1, 20)
        covered = [n for first, last in split(low, high, parts) for n in range(first + 1, last + 1)]
        assert covered == list(range(low + 1, high + 1))
        predicates = split_predicates("id", low, high, parts)
        assert len(predicates) == max(1, min(parts, high - low + 1))
        assert (predicates == [""]) is (len(predicates) == 1)


def rows_of_reader(reader: Any, partitions: Any) -> list[tuple[Any, ...]]:
    """Reads as the workers do: from what was pickled."""
    reader, partitions = pickle.loads(pickle.dumps((reader, partitions)))
    batches: list[pa.RecordBatch] = [batch for partition in partitions for batch in reader.read(partition)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def source(url: str, **options: str) -> DatabaseDataSource:
    return DatabaseDataSource({"url": url, **options})


def read(url: str, schema: T.StructType | None = None, **options: str) -> list[tuple[Any, ...]]:
    made = source(url, **options)
    reader = made.reader(schema or made.schema())
    return sorted(rows_of_reader(reader, reader.partitions()))


def fill(url: str, first: int, last: int) -> None:
    run(url, "INSERT INTO t VALUES " + ", ".join(f"({n}, 'name {n}')" for n in range(first, last + 1)))


@pytest.fixture
def table(database_url: str) -> str:
    run(database_url, "CREATE TABLE t (id bigint, name text)")
    fill(database_url, 1, 10)
    return database_url


def test_batch_reads(table: str) -> None:
    run(table, "INSERT INTO t VALUES (NULL, 'none'), (-5, NULL)")
    everything = [(n, f"name {n}") for n in range(1, 11)]
    key = str
    assert source(table, table="t").schema().simpleString() == "struct<id:bigint,name:string>"
    reader = source(table, table="t").reader(source(table, table="t").schema())
    rows = rows_of_reader(reader, reader.partitions())
    expected = [(None, "none"), (-5, None), *everything]
    assert sorted(rows, key=key) == sorted(expected, key=key)
    split_options = {"table": "t", "partitions": "4", "partitionColumn": "id"}
    made = source(table, **split_options)
    reader = made.reader(made.schema())
    partitions = reader.partitions()
    assert len(partitions) == 4
    assert sorted(rows_of_reader(reader, partitions), key=key) == sorted(expected, key=key)
    query = "SELECT id * 2 AS double, name FROM t WHERE id > 8 -- the last"
    assert read(table, query=query) == [(18, "name 9"), (20, "name 10")]
    assert read(table, table="t", growingColumn="id", startingValue="8") == everything[8:]
    only_name = T.StructType([T.StructField("name", T.StringType())])
    assert (("name 3",)) in read(table, only_name, query="SELECT * FROM t WHERE id > 0")


def test_batch_reads_of_nothing(database_url: str) -> None:
    run(database_url, "CREATE TABLE t (id bigint, name text)")
    assert read(database_url, table="t") == []
    assert read(database_url, table="t", partitions="3", partitionColumn="id") == []


def test_mistakes_are_told(table: str) -> None:
    with pytest.raises(Exception, match="nowhere") as raised:
        read(table, table="nowhere")
    assert isinstance(raised.value, ResourceNotFound) or table.startswith("sqlite")
    with pytest.raises(InvalidConfig, match="there is no column 'x'; there are id, name"):
        source(table, table="t", growingColumn="x").streamReader(source(table, table="t").schema())
    with pytest.raises(InvalidConfig, match="growingColumn is missing"):
        source(table, table="t").streamReader(source(table, table="t").schema())
    with pytest.raises(InvalidConfig, match="column 'name' is string; it must be a whole number"):
        read(table, table="t", partitions="2", partitionColumn="name")
    with pytest.raises(InvalidConfig, match="schema: there is no column 'zip'"):
        read(table, T.StructType([T.StructField("zip", T.StringType())]), table="t")
    with pytest.raises(InvalidRecord, match="column 'name': a value does not fit date32"):
        read(table, T.StructType([T.StructField("name", T.DateType())]), table="t")


def stream(url: str, clock: ManualClock | None = None, **options: str) -> DatabaseStreamReader:
    parsed = parse_options({"url": url, **options})
    return DatabaseStreamReader(parsed, source(url, **options).schema(), clock)


def step(
    reader: DatabaseStreamReader, start: dict[str, Any], limit: Any = None
) -> tuple[dict[str, Any], list[Any]]:
    """A batch: where it ends, as the checkpoint has it, and its ids."""
    end = json.loads(json.dumps(reader.latestOffset(start, limit or ReadAllAvailable())))
    rows = rows_of_reader(reader, reader.partitions(start, end))
    return end, sorted(row[0] for row in rows)


def test_stream_reads_what_is_new(table: str) -> None:
    reader = stream(table, table="t", growingColumn="id")
    start = reader.initialOffset()
    assert start == {"column": "id", "value": None}
    first, ids = step(reader, start)
    assert (first, ids) == ({"column": "id", "value": "10"}, list(range(1, 11)))
    assert step(reader, first) == (first, [])
    fill(table, 11, 13)
    second, ids = step(reader, first)
    assert ids == [11, 12, 13]
    # After a restart the same batch is read from what the checkpoint has, whatever has come since.
    fill(table, 14, 15)
    again = stream(table, table="t", growingColumn="id", partitions="2")
    rows = rows_of_reader(again, again.partitions(first, second))
    assert sorted(row[0] for row in rows) == [11, 12, 13]
    assert len(again.partitions(first, second)) == 2
    assert again.partitions(second, second) == []
    with pytest.raises(InvalidConfig, match="the checkpoint goes by 'id', not by 'name'"):
        stream(table, table="t", growingColumn="name").latestOffset(first, ReadAllAvailable())


def test_stream_takes_so_many_rows_at_once(table: str) -> None:
    run(table, "INSERT INTO t VALUES (4, 'again'), (4, 'and again')")
    reader = stream(table, table="t", growingColumn="id", startingValue="1", maxRowsPerTrigger="3")
    assert reader.getDefaultReadLimit() == ReadMaxRows(3)
    offset, found = reader.initialOffset(), []
    while True:
        end, ids = step(reader, offset, reader.getDefaultReadLimit())
        if end == offset:
            break
        found.append(ids)
        offset = end
    # Rows of one value stay together.
    assert found == [[2, 3, 4, 4, 4], [5, 6, 7], [8, 9, 10]]


def test_available_now_ends_where_it_began(table: str) -> None:
    reader = stream(table, table="t", growingColumn="id")
    reader.prepareForTriggerAvailableNow()
    fill(table, 11, 12)
    end, ids = step(reader, reader.initialOffset(), ReadMaxRows(6))
    assert ids == [1, 2, 3, 4, 5, 6]
    end, ids = step(reader, end, ReadMaxRows(6))
    assert ids == [7, 8, 9, 10]
    assert step(reader, end, ReadMaxRows(6)) == (end, [])


def test_bound_settles_by_and_by(table: str) -> None:
    clock = ManualClock()
    reader = stream(table, clock, table="t", growingColumn="id", settleSeconds="5")
    start = reader.initialOffset()
    assert step(reader, start) == (start, [])
    clock.advance_ms(4_000)
    # Late, below what was seen: it is in time.
    run(table, "INSERT INTO t VALUES (0, 'late')")
    fill(table, 11, 11)
    assert step(reader, start) == (start, [])
    clock.advance_ms(1_000)
    end, ids = step(reader, start)
    assert ids == list(range(11))
    clock.advance_ms(5_000)
    assert step(reader, end)[1] == [11]


@pytest.mark.slow
@pytest.mark.parametrize("read_as", ["table", "partitions", "view", "query"])
def test_open_transactions_are_waited_for(postgres: str, read_as: str) -> None:
    """A number that is taken and not committed holds the stream back, only until its transaction ends."""
    name = f"numbered_{read_as}"
    parts = read_as == "partitions"
    run(
        postgres,
        f"CREATE TABLE {name} (id bigserial, name text)" + (" PARTITION BY RANGE (id)" if parts else ""),
        f"CREATE TABLE {name}_part {f'PARTITION OF {name} DEFAULT' if parts else '(id bigint)'}",
        f"CREATE VIEW {name}_view AS SELECT * FROM {name}",
        f"INSERT INTO {name} (name) VALUES ('first')",
    )
    # A writer may go straight to a part, which does not lock the whole.
    into = f"INSERT INTO {name}{'_part' if parts else ''} (name) VALUES"
    options = {"query": f"SELECT * FROM {name}"} if read_as == "query" else {"table": name}
    if read_as == "view":
        options["table"] += "_view"
    database = parse_url(postgres)
    reader = stream(postgres, None, growingColumn="id", **options)
    offset, ids = step(reader, reader.initialOffset())
    assert ids == [1]
    with connected(database) as slow, connected(database) as later, connected(database) as other:
        execute(other, "CREATE TEMP TABLE bystander (id bigint)")
        execute(slow, f"{into} ('slow')")
        run(postgres, f"{into} ('quick')")
        assert step(reader, offset) == (offset, []), "2 is not there yet, so 3 must wait"
        execute(later, f"{into} ('later')")
        slow.commit()
        other.rollback()
        # Whoever came after the bound was read has higher numbers: it need not be waited for.
        offset, ids = step(reader, offset)
        assert ids == [2, 3]
        later.rollback()
    assert step(reader, offset) == (offset, [])


@pytest.mark.slow
def test_open_transaction_of_another_table_is_not_waited_for(postgres: str) -> None:
    run(postgres, "CREATE TABLE looked_at (id bigint)", "CREATE TABLE bystander (id bigint)")
    with connected(parse_url(postgres)) as other:
        execute(other, "INSERT INTO bystander VALUES (1)")
        run(postgres, "INSERT INTO looked_at VALUES (1)")
        reader = stream(postgres, table="looked_at", growingColumn="id")
        assert step(reader, reader.initialOffset())[1] == [1]


@pytest.mark.slow
def test_types_of_postgresql(postgres: str) -> None:
    run(
        postgres,
        "CREATE TABLE typed (a smallint, b integer, c real, d double precision, e boolean, f varchar(9), g bytea, "
        "h date, i timestamp, j timestamptz, k numeric(12,2), l numeric, m integer[], n jsonb, o uuid, p interval)",
        "INSERT INTO typed VALUES (1, 2, 0.5, 1e300, true, 'f', '\\x00ff', '2024-02-29', '2024-02-29 12:00', "
        "'2024-02-29 12:00+01', -12.30, 1.5, '{1,NULL}', '{\"x\": 1}', "
        "'9f8d1f0e-7f4c-4c7e-9a39-4a3f5a3ab8a0', '1 day')",
        "INSERT INTO typed (a) VALUES (NULL)",
    )
    made = source(postgres, table="typed")
    assert made.schema().simpleString() == (
        "struct<a:smallint,b:int,c:float,d:double,e:boolean,f:string,g:binary,h:date,i:timestamp_ntz,j:timestamp,"
        "k:decimal(12,2),l:decimal(38,18),m:array<int>,n:string,o:string,p:string>"
    )
    reader = made.reader(made.schema())
    first, second = rows_of_reader(reader, reader.partitions())
    noon = datetime.datetime(2024, 2, 29, 12, tzinfo=UTC)
    assert first == (
        *(1, 2, 0.5, 1e300, True, "f", b"\x00\xff"),
        *(noon.date(), noon.replace(tzinfo=None), noon - datetime.timedelta(hours=1)),
        *(decimal.Decimal("-12.30"), decimal.Decimal("1.5"), [1, None], '{"x": 1}'),
        *("9f8d1f0e-7f4c-4c7e-9a39-4a3f5a3ab8a0", "1 day"),
    )
    assert set(second) == {None}


@pytest.mark.slow
def test_stream_by_time_and_by_text(postgres: str) -> None:
    run(
        postgres,
        "CREATE TABLE timed (at timestamptz, label text)",
        "INSERT INTO timed SELECT timestamptz '2024-01-01 00:00:00.000001Z' + n * interval '1 hour', 'l' || n "
        "FROM generate_series(1, 5) n",
    )
    for column, last in (("at", "2024-01-01 05:00:00.000001+00"), ("label", "l5")):
        reader = stream(postgres, table="timed", growingColumn=column)
        middle, rows = step(reader, reader.initialOffset(), ReadMaxRows(2))
        assert len(rows) == 2
        end, rows = step(reader, middle)
        assert (end["value"], len(rows)) == (last, 3)


def test_types_of_sqlite(tmp_path: Any) -> None:
    where = f"sqlite:///{tmp_path}/types.db"
    run(
        where,
        "CREATE TABLE typed (a INTEGER, b REAL, c TEXT, d BLOB, e BOOLEAN, f DATE, g TIMESTAMP, h DECIMAL(9,2), i)",
    )
    # So many rows without values that ADBC would have made up its mind about their types.
    run(
        where,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
        "INSERT INTO typed (a) SELECT NULL FROM n",
        "INSERT INTO typed VALUES (1, 0.5, 'c', x'00ff', 1, '2024-02-29', '2024-02-29T12:00:00.5Z', 1.25, 'any')",
    )
    made = source(where, table="typed")
    assert made.schema().simpleString() == (
        "struct<a:bigint,b:double,c:string,d:binary,e:boolean,f:date,g:timestamp,h:double,i:string>"
    )
    reader = made.reader(made.schema())
    *empty, last = rows_of_reader(reader, reader.partitions())
    assert len(empty) == 3000
    assert set(empty) == {(None,) * 9}
    moment = datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000, tzinfo=UTC)
    assert last == (1, 0.5, "c", b"\x00\xff", True, moment.date(), moment, 1.25, "any")


def test_readers_pickle_small(table: str) -> None:
    reader = source(table, table="t").reader(source(table, table="t").schema())
    assert isinstance(reader, DatabaseReader)
    assert len(pickle.dumps(reader)) < 2_000
