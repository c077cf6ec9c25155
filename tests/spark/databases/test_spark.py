"""Databases through Spark: a stream from a table into a table, again after a restart, and what plans show."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.errors import InvalidConfig
from barnabas.spark import register
from barnabas.spark.databases.connection import connected, parse_url, rows_of
from barnabas.spark.databases.sink import DatabaseSink
from tests.spark.database_fixtures import run
from tests.spark.postgres_server import PASSWORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def copy_what_is_new(rows: DataFrame, sink: DatabaseSink, checkpoint: Path) -> None:
    query = (
        rows.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(300)
        progress = str(query.lastProgress)
    finally:
        query.stop()
    assert PASSWORD not in progress


def test_stream_from_table_to_table(spark: SparkSession, postgres: str, tmp_path: Path) -> None:
    register(spark)
    run(
        postgres,
        "CREATE TABLE clicks (id bigserial, person text, price numeric(9,2), at timestamptz DEFAULT now())",
        "INSERT INTO clicks (person, price) SELECT 'p' || n % 10, n / 4.0 FROM generate_series(1, 1000) n",
    )
    clicks = (
        spark.readStream.format("barnabas-database")
        .options(url=postgres, table="clicks", growingColumn="id", maxRowsPerTrigger="600", partitions="2")
        .load()
    )
    rows = clicks.selectExpr("id", "person", "price", "at", "map('id', id) AS more")
    sink = DatabaseSink(postgres, "copied", mode="upsert", keys=["id"])
    copy_what_is_new(rows, sink, tmp_path / "checkpoint")
    run(postgres, "INSERT INTO clicks (person, price) VALUES ('late', 1)")
    copy_what_is_new(rows, sink, tmp_path / "checkpoint")
    with connected(parse_url(postgres)) as connection:
        differences = rows_of(
            connection,
            "SELECT count(*) FROM clicks c FULL JOIN copied o USING (id, person, price, at) "
            "WHERE c.id IS NULL OR o.id IS NULL OR (o.more->>'id')::bigint <> id",
        )
        [(count,)] = rows_of(connection, "SELECT count(*) FROM copied")
        batches = rows_of(connection, "SELECT target, batch_id FROM barnabas_batches WHERE target = 'copied'")
    assert differences == [(0,)]
    assert count == 1001
    assert batches == [("copied", 2)]


def test_tables_and_mistakes(spark: SparkSession, database_url: str) -> None:
    register(spark)
    rows = spark.range(100).selectExpr("id", "string(id) AS name", "cast(id / 4 as decimal(9,2)) AS price")
    sink = DatabaseSink(database_url, "t")
    sink.write_batch(rows, 0, "query")
    sink.write_batch(rows, 0, "query")
    table = spark.read.format("barnabas-database").options(
        url=database_url, table="t", partitions="3", partitionColumn="id"
    )
    found = table.load()
    assert found.selectExpr("count(*)", "sum(id)", "sum(double(price))", "max(length(name))").collect() == [
        (100, 4950, 1237.5, 2)
    ]
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        found.explain(True)
    assert "barnabas-database" in told.getvalue()
    assert PASSWORD not in told.getvalue()
    with pytest.raises(InvalidConfig, match="no column 'more', which the rows have; it has id, name, price"):
        sink.write_batch(rows.selectExpr("id", "1 AS more"), 1, "query")
    with pytest.raises(Exception, match="option tabel: there is no such option"):
        table.option("tabel", "t").load()
