"""Pipelines of users, tested on a few rows and without a broker."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.errors import InvalidConfig, KafkaError
from barnabas.spark.testing import record, run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.pipeline.conftest import Write

DEMO = Path(__file__).parents[3] / "demo"


def order(number: int, product: str, cents: int, minute: int) -> dict[str, object]:
    at = f"2026-05-01T09:{minute:02}:00Z"
    return {"id": number, "customer": 1, "product": product, "quantity": 1, "cents": cents, "at": at}


def test_windows_and_dead_letters(spark: SparkSession) -> None:
    done = run_pipeline(
        spark,
        DEMO / "revenue.toml",
        environment={},
        orders=[
            order(1, "books-1", 1800, 1),
            record(order(2, "books-2", 1800, 9), key="ann", partition=1),
            order(3, "tools-1", 4500, 11),
            record(b"{nope", key=b"k", partition=1),
        ],
    )
    found = {(each["since"][11:16], each["category"]): each["euros"] for each in done.values}
    assert found == {("09:00", "books"): 36.0, ("09:10", "tools"): 45.0}
    assert {row["key"] for row in done.rows} == {"books", "tools"}
    (letter,) = done.dead_letters
    assert (letter["key"], letter["value"], letter["topic"]) == (b"k", b"{nope", "orders-bad")
    origin = {each["key"]: bytes(each["value"]) for each in letter["headers"]}
    assert origin["__barnabas.errors.topic"] == b"orders"
    assert (origin["__barnabas.errors.partition"], origin["__barnabas.errors.offset"]) == (b"1", b"1")
    assert done.steps["orders"].count() == 3


def test_a_join_with_tables(spark: SparkSession) -> None:
    """The last record of a key counts, and a key without a value is gone."""
    done = run_pipeline(
        spark,
        DEMO / "enriched.toml",
        environment={},
        orders=[order(1, "books-1", 1800, 1), order(2, "books-2", 1800, 2)],
        products=[
            record({"title": "old", "stock": 1}, key="books-1"),
            record({"title": "new", "stock": 1}, key="books-1"),
            record({"title": "gone", "stock": 1}, key="books-2"),
            record(None, key="books-2"),
        ],
        customers=[{"id": 1, "name": "Ann", "city": "Bern"}],
    )
    assert [(each["id"], each["title"], each["city"]) for each in done.values] == [(1, "new", "Bern")]
    assert done.dead_letters == []


def test_several_sinks(spark: SparkSession, pipeline_file: Write) -> None:
    file = pipeline_file(
        """
        name = "several"
        sources.orders = { type = "topic", topics = "orders", format = { kind = "json", schema = "id BIGINT" } }
        transforms = [{ name = "even", sql = "SELECT id FROM orders WHERE id % 2 = 0" }]
        sinks.lake = { type = "delta", path = "lake", from = "orders" }
        sinks.even = { type = "topic", topic = "even", format = { kind = "json" } }
        """
    )
    done = run_pipeline(spark, file, orders=[{"id": 1}, {"id": 2}])
    assert [row["id"] for row in done.sinks["lake"]] == [1, 2]
    assert done.values_of("even") == [{"id": 2}]
    with pytest.raises(
        InvalidConfig, match=r"several sinks: use sinks\[name\] or values_of\(name\) with lake, even"
    ):
        _ = done.rows


def test_errors(spark: SparkSession, pipeline_file: Write) -> None:
    file = pipeline_file(
        """
        name = "strict"
        [sources.orders]
        type = "topic"
        topics = "orders"
        format = { kind = "json", schema = "id BIGINT" }
        [sink]
        type = "files"
        path = "out"
        file_format = "json"
        """
    )
    assert [row["id"] for row in run_pipeline(spark, file, orders=[{"id": 7}]).rows] == [7]
    with pytest.raises(KafkaError, match="a record cannot be decoded: topic orders partition 0 offset 1"):
        run_pipeline(spark, file, orders=[{"id": 7}, record(b"[")])
    with pytest.raises(InvalidConfig, match="there is no source oders; there are orders"):
        run_pipeline(spark, file, oders=[])
    with pytest.raises(InvalidConfig, match="give the rows of orders"):
        run_pipeline(spark, file)


def test_the_example_of_the_guide(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (DEMO.parent / "docs" / "PIPELINES.md").read_text(encoding="utf-8")
    first = re.search(r"^```toml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    example = re.search(r"^```python\n(import pytest\n.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert first is not None
    assert example is not None
    (tmp_path / "revenue.toml").write_text(first[1])
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(example[1], "docs/PIPELINES.md", "exec"), names)
    names["test_revenue"](spark)
