"""Schemas and SQL by Spark's parser and analyzer, without a broker, a database or a registry to ask."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.pipeline.check import WHAT_SPARK_CHECKS, check, check_apart
from barnabas.spark.pipeline.load import load_pipeline
from tests.spark.pipeline.conftest import Write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD = 'name = "checked"\n'
ORDERS = """
    [sources.orders]
    type = "topic"
    topics = "orders"
    format = { kind = "json", schema = "id BIGINT, cents BIGINT, at TIMESTAMP" }
"""
OUT = """
    [sink]
    type = "topic"
    topic = "out"
    format = { kind = "json" }
"""


def step(sql: str, name: str = "step") -> str:
    return f'[[transforms]]\nname = "{name}"\nsql = """{sql}"""\n'


def source(schema: str) -> str:
    return ORDERS.replace("id BIGINT, cents BIGINT, at TIMESTAMP", schema)


WATERMARK = 'watermark = { column = "COLUMN", delay = "1m" }\n'
DATABASE = '[sources.shop]\ntype = "database"\nurl = "sqlite:///none.db"\ntable = "t"\nas_table = true\n'
FILES = '[sources.people]\ntype = "files"\npath = "in"\nfile_format = "csv"\nschema = "id BIGNT"\n'
AVRO = """
    [sources.orders]
    type = "topic"
    topics = "orders"
    format = { kind = "avro", registry = "http://localhost:1", subject = "orders" }
"""
DELTA = '[sink]\ntype = "delta"\npath = "out"\nmode = "upsert"\nkeys = ["customer"]\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            source("id BIGNT") + OUT,
            'sources.orders.format.schema: not Spark\'s DDL: Unsupported data type "BIGNT"',
        ),
        (source("id BIGINT,, x INT") + OUT, "sources.orders.format.schema: not Spark's DDL: Syntax error"),
        (FILES + OUT, 'sources.people.schema: not Spark\'s DDL: Unsupported data type "BIGNT"'),
        (
            ORDERS + OUT.replace('"json" }', '"json", schema = "id BIGNT" }'),
            "sink.format.schema: not Spark's DDL: Unsupported data type",
        ),
        (ORDERS + step("SELEC id FROM orders") + OUT, "transforms[0].sql: Syntax error at or near 'SELEC'"),
        (ORDERS + step("DROP VIEW orders") + OUT, "transforms[0].sql: Syntax error at or near 'DROP'"),
        (ORDERS + step("SELECT nope FROM orders") + OUT, "`nope` cannot be resolved. Did you mean"),
        (
            ORDERS + step("SELECT 1 FROM oders") + OUT,
            "The table or view `oders` cannot be found. (line 1 pos 14)",
        ),
        (
            ORDERS + step("SELECT frob(id) FROM orders") + OUT,
            "transforms[0].sql: Cannot resolve routine `frob`",
        ),
        (ORDERS + step("SELECT at + 'x' * id AS v FROM orders") + OUT, "transforms[0].sql: "),
        (
            ORDERS + WATERMARK.replace("COLUMN", "when") + OUT,
            "sources.orders.watermark: the watermark of orders",
        ),
        (ORDERS + WATERMARK.replace("COLUMN", "id") + OUT, "sources.orders.watermark: "),
        (ORDERS + OUT + 'key = "customer"\n', "sink.key: there is no column customer; there are"),
        (ORDERS + DELTA, "sink.keys: there is no column customer; there are"),
        (
            ORDERS + step("SELECT id, count(*) AS n FROM orders GROUP BY id") + OUT,
            "output_mode: Invalid streaming output mode: append.",
        ),
    ],
)
def test_faults(spark: SparkSession, pipeline_file: Write, text: str, fault: str) -> None:
    path = pipeline_file(HEAD + text)
    found = check(spark, load_pipeline(path), path.parent, asks_registries=False)
    assert len(found.faults) == 1, found
    assert fault in found.faults[0]
    assert "\n" not in found.faults[0]


def test_all_faults_are_told_at_once(spark: SparkSession, pipeline_file: Write) -> None:
    """Steps on what is faulty are parsed and no more, so that one mistake is one line."""
    path = pipeline_file(
        HEAD
        + source("id BIGNT")
        + step("SELECT nope FROM orders", "one")
        + step("SELEC 1", "two")
        + step("SELECT 1 AS x FROM one", "three")
        + OUT
    )
    found = check(spark, load_pipeline(path), path.parent, asks_registries=False)
    assert [each.partition(": ")[0] for each in found.faults] == [
        "sources.orders.format.schema",
        "transforms[1].sql",
    ]
    assert [each.partition(": ")[0] for each in found.not_checked] == [
        "transforms[0].sql",
        "transforms[2].sql",
        "sink",
    ]


@pytest.mark.parametrize(
    ("text", "not_checked"),
    [
        (ORDERS + step("SELECT id FROM orders WHERE cents > 1") + OUT, []),
        (
            ORDERS + DATABASE + step("SELECT id FROM orders JOIN shop USING (id)") + OUT,
            ["sources.shop", "transforms[0].sql", "sink"],
        ),
        (AVRO + OUT, ["sources.orders", "sink"]),
        (
            ORDERS + '[[transforms]]\nname = "f"\nfunction = "steps:f"\n' + step("SELECT id FROM f") + OUT,
            ["transforms[0].function", "transforms[1].sql", "sink"],
        ),
        (
            ORDERS
            + '[[transforms]]\nname = "f"\nfunction = "steps:f"\n'
            + step("SELECT frob(id) FROM orders")
            + OUT,
            ["transforms[0].function", "transforms[1].sql", "sink"],
        ),
    ],
)
def test_what_is_not_checked_is_told(
    spark: SparkSession, pipeline_file: Write, text: str, not_checked: list[str]
) -> None:
    path = pipeline_file(HEAD + text, steps="raise SystemExit('code of a pipeline runs in a validation')")
    found = check(spark, load_pipeline(path), path.parent, asks_registries=False)
    assert found.faults == []
    assert [each.partition(": ")[0] for each in found.not_checked] == not_checked


def test_without_java(pipeline_file: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    path = pipeline_file(HEAD + source("id BIGNT") + OUT)
    found = check_apart(path, load_pipeline(path), asks_registries=False)
    assert found.faults == []
    assert found.not_checked[0].startswith(f"{WHAT_SPARK_CHECKS}: Spark needs Java: JAVA_HOME is {tmp_path}")
