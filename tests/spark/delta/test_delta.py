"""Delta tables as sinks: a batch once, whoever writes it again, and what readers see of it."""

from __future__ import annotations

import datetime
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T  # noqa: N812

from barnabas.errors import InvalidConfig, OutOfOrderSequenceNumber
from barnabas.spark import register
from barnabas.spark.delta.sink import DeltaSink, DeltaWriter, check_columns
from barnabas.spark.delta.source import DeltaDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = T.StructType([T.StructField("id", T.LongType()), T.StructField("name", T.StringType())])


def prepared(path: Path, **options: Any) -> DeltaSink:
    sink = DeltaSink(str(path), **options)
    sink._prepare(SCHEMA)
    return sink


def writer(path: Path, batch_id: int, keys: tuple[str, ...] = (), query_id: str = "q") -> DeltaWriter:
    made = DeltaWriter(
        path=str(path),
        keys=keys,
        updated=["id", "name"],
        batch_id=batch_id,
        query_id=query_id,
        storage_options={},
    )
    found: DeltaWriter = pickle.loads(pickle.dumps(made))
    return found


def batches(*rows: tuple[int, str]) -> list[pa.RecordBatch]:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    return [pa.record_batch([[number], [name]], schema=schema) for number, name in rows]


def written(found: Iterator[pa.RecordBatch]) -> int:
    [batch] = list(found)
    rows: int = batch.column(0)[0].as_py()
    return rows


def content(path: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in DeltaTable(str(path)).to_pyarrow_table().to_pylist())


def test_batch_is_written_once(tmp_path: Path) -> None:
    prepared(tmp_path)
    assert written(writer(tmp_path, 0)(batches((1, "a"), (2, "b")))) == 2
    source = iter(batches((1, "a"), (2, "b")))
    assert written(writer(tmp_path, 0)(source)) == 0
    assert next(source, None) is None
    assert written(writer(tmp_path, 1)([])) == 0
    assert DeltaTable(str(tmp_path)).transaction_version("q") == 1
    assert written(writer(tmp_path, 2)(batches((3, "c")))) == 1
    with pytest.raises(OutOfOrderSequenceNumber, match="batch 1 of query q is refused, since batch 2"):
        list(writer(tmp_path, 1)(batches((9, "z"))))
    assert written(writer(tmp_path, 0, query_id="other")(batches((4, "d")))) == 1
    assert content(tmp_path) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_upsert_of_keys_alone_and_of_odd_names(tmp_path: Path) -> None:
    columns = T.StructType([T.StructField(name, T.LongType()) for name in ("a b", "Ünï", "x.y")])
    DeltaSink(str(tmp_path), mode="upsert", keys=["a b"])._prepare(columns)
    for batch_id, (updated, value) in enumerate([(["Ünï", "x.y"], 1), (["x.y"], 2), (["a b"], 3)]):
        made = DeltaWriter(
            path=str(tmp_path),
            keys=["a b"],
            updated=updated,
            batch_id=batch_id,
            query_id="q",
            storage_options={},
        )
        list(made([pa.record_batch({"a b": [7], "Ünï": [value], "x.y": [value]})]))
    assert content(tmp_path) == [(7, 1, 2)]


def test_upsert(tmp_path: Path) -> None:
    prepared(tmp_path, mode="upsert", keys=["id"])
    list(writer(tmp_path, 0, ("id",))(batches((1, "a"), (2, "b"))))
    assert written(writer(tmp_path, 1, ("id",))(batches((2, "b2"), (3, "c")))) == 2
    assert written(writer(tmp_path, 1, ("id",))(batches((2, "b2"), (3, "c")))) == 0
    assert content(tmp_path) == [(1, "a"), (2, "b2"), (3, "c")]


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_two_writers_of_one_batch(tmp_path: Path, keys: tuple[str, ...]) -> None:
    """The one that was thought dead commits behind the new one: it finds the batch in the table."""
    prepared(tmp_path, **({"mode": "upsert", "keys": keys} if keys else {}))
    list(writer(tmp_path, 0, keys)(batches((1, "a"))))
    results = []

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from batches((1, "a2"))
        other = threading.Thread(
            target=lambda: results.append(written(writer(tmp_path, 1, keys)(batches((1, "a2"), (2, "b")))))
        )
        other.start()
        other.join(60)
        yield from batches((2, "b"))

    results.append(written(writer(tmp_path, 1, keys)(overtaken())))
    assert results == [2, 0]
    assert content(tmp_path) == ([(1, "a2"), (2, "b")] if keys else [(1, "a"), (1, "a2"), (2, "b")])


KILLED_WRITER = """
import os, pickle, signal, sys
import pyarrow as pa
from barnabas.spark.delta.sink import DeltaWriter

class Dying(DeltaWriter):
    def commit(self, table, rows, properties):
        if MOMENT == "after":
            super().commit(table, rows, properties)
        else:
            # The rows have been written to a file by the time the last is asked for.
            def dying():
                yield from rows
                os.kill(os.getpid(), signal.SIGKILL)
            super().commit(table, pa.RecordBatchReader.from_batches(rows.schema, dying()), properties)
        os.kill(os.getpid(), signal.SIGKILL)

MOMENT = sys.argv[1]
writer = pickle.load(sys.stdin.buffer)
writer.__class__ = Dying
list(writer([pa.record_batch([pa.array([1, 2]), pa.array(["a", "b"])], names=["id", "name"])]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_writer_killed_around_its_commit(tmp_path: Path, moment: str) -> None:
    prepared(tmp_path)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_WRITER, moment],
        input=pickle.dumps(writer(tmp_path, 0)),
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(content(tmp_path)) == (0 if moment == "before" else 2)
    assert written(writer(tmp_path, 0)(batches((1, "a"), (2, "b")))) == (2 if moment == "before" else 0)
    assert content(tmp_path) == [(1, "a"), (2, "b")]


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="an upsert needs"):
        DeltaSink("x", mode="upsert")
    with pytest.raises(InvalidConfig, match="partition_by: the rows have no column 'day', but id, name"):
        prepared(tmp_path, partition_by=["day"])
    table = T.StructType([*SCHEMA.fields, T.StructField("need", T.LongType(), False)])
    with pytest.raises(InvalidConfig, match="column 'need' may not be null, and the rows have none"):
        check_columns("x", table, SCHEMA)
    with pytest.raises(InvalidConfig, match="column 'id' is bigint and the rows' is string"):
        check_columns("x", SCHEMA, T.StructType([T.StructField("id", T.StringType())]))
    with pytest.raises(InvalidConfig, match="no column 'more', which the rows have; it has id, name"):
        check_columns("x", SCHEMA, T.StructType([T.StructField("more", T.StringType())]))


def test_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    sink = DeltaSink(str(tmp_path), mode="upsert", keys=["id"], partition_by=["day"])
    rows = spark.sql(
        "SELECT id % 50 AS id, id AS number, map('k', array(id)) more, timestamp'2024-01-01 12:00:00' at, "
        "cast(id / 4 as decimal(9,2)) price, date'2024-01-01' day FROM range(0, 100, 1, 1)"
    )
    sink.write_batch(rows, 0, "query")
    sink.write_batch(rows.selectExpr("id", "-1L AS number", "day").where("id = 7"), 1, "query")
    sink.write_batch(rows, 1, "query")
    found = sorted(DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["number"]) for row in found] == [(n, -1 if n == 7 else n + 50) for n in range(50)]
    assert float(found[3]["price"]) == 53 / 4
    assert float(found[7]["price"]) == 57 / 4, "what the rows do not have is kept"
    assert found[3]["more"] == [("k", [53])]
    register(spark)
    table = spark.read.format("barnabas-delta").load(str(tmp_path))
    assert table.selectExpr("sum(number)", "min(day)", "max(more['k'][0])").collect() == [
        (sum(range(50, 100)) - 58, datetime.date(2024, 1, 1), 99)
    ]
    with pytest.raises(InvalidConfig, match="column 'number' is bigint and the rows' is string"):
        sink.write_batch(rows.selectExpr("id", "'x' AS number", "day"), 2, "query")


def read(path: Path, schema: T.StructType | None = None, **options: str) -> list[dict[str, Any]]:
    """Reads as the workers do: from what was pickled."""
    source = DeltaDataSource({"path": str(path), **options})
    reader = source.reader(schema or source.schema())
    reader, partitions = pickle.loads(pickle.dumps((reader, reader.partitions())))
    found = [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]
    return sorted(found, key=str)


def test_tables_are_read(tmp_path: Path) -> None:
    columns = T.StructType([*SCHEMA.fields, T.StructField("day", T.DateType())])
    table = DeltaSink(str(tmp_path), partition_by=["day"])
    table._prepare(columns)
    assert read(tmp_path) == []
    days = [datetime.date(2024, 1, 1), None]
    rows = pa.record_batch({"id": [1, 2], "name": ["a", None], "day": pa.array(days, pa.date32())})
    list(writer(tmp_path, 0)([rows]))
    list(writer(tmp_path, 1)([rows]))
    assert read(tmp_path) == [
        {"id": 1, "name": "a", "day": days[0]},
        {"id": 1, "name": "a", "day": days[0]},
        {"id": 2, "name": None, "day": None},
        {"id": 2, "name": None, "day": None},
    ]
    assert len(read(tmp_path, version="1")) == 2
    assert read(tmp_path, T.StructType(columns.fields[:1]), version="1") == [{"id": 1}, {"id": 2}]
    for options, told in (
        ({"path": str(tmp_path / "none")}, "is not a Delta table"),
        ({"path": "x", "version": "new"}, "'new' is not a number"),
        ({"path": "x", "verison": "1"}, "option verison: there is no such option"),
        ({}, "option path is missing"),
    ):
        with pytest.raises(InvalidConfig, match=told):
            DeltaDataSource(options).schema()
    with pytest.raises(InvalidConfig, match="there is no column 'x'; there are id, name, day"):
        read(tmp_path, T.StructType([T.StructField("x", T.LongType())]))
