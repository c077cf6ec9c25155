"""Pipelines with several sinks: each of them has every row once, and Spark reads a batch once for all of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from barnabas.errors import InvalidConfig, KafkaError
from barnabas.model import TopicPartition
from barnabas.spark.pipeline.fan_out import FanOut
from barnabas.spark.pipeline.group import starting_offsets
from barnabas.spark.pipeline.plan import plan_of, plan_text
from barnabas.spark.pipeline.reset import execute_reset, plan_reset
from barnabas.spark.pipeline.run import PipelineRun
from barnabas.spark.pipeline.status import status_of
from barnabas.testing import Broker
from tests.spark.pipeline.running import Load, records_of, run_to_end, send, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = """
    name = "{topic}"
    output_mode = "update"
    [sources.orders]
    type = "topic"
    topics = "{topic}"
    format = {{ kind = "json", schema = "customer STRING, amount BIGINT" }}
    [dead_letters]
    topic = "{topic}-bad"
    [[transforms]]
    name = "large"
    sql = "SELECT customer, amount FROM orders WHERE amount >= 10"
    [[transforms]]
    name = "totals"
    sql = "SELECT customer, sum(amount) AS total FROM large GROUP BY customer"
"""
SINKS = """
    [sinks.copy]
    type = "topic"
    from = "large"
    topic = "{topic}-copy"
    format = {{ kind = "json" }}
    [sinks.lake]
    type = "delta"
    from = "large"
    path = "lake"
    [sinks.sums]
    type = "topic"
    topic = "{topic}-sums"
    key = "customer"
    format = {{ kind = "json" }}
    [sinks.table]
    type = "database"
    url = "sqlite:///{folder}/table.db"
    table = "totals"
    mode = "upsert"
    keys = ["customer"]
"""


def orders(*amounts: int) -> list[dict[str, Any]]:
    return [{"customer": "ann" if amount % 2 else "bob", "amount": amount} for amount in amounts]


def in_lake(folder: Path) -> Counter[int]:
    rows = deltalake.DeltaTable(folder / "lake").to_pyarrow_table().to_pylist()
    return Counter(row["amount"] for row in rows)


def amounts_of(broker: Broker, topic: str) -> Counter[int]:
    return Counter(value["amount"] for value in values_of(broker, topic))


def test_every_sink_has_its_rows_once(
    spark: SparkSession, broker: Broker, topic: str, load: Load, tmp_path: Path
) -> None:
    """Four sinks of two steps: two queries and that of dead letters, in two runs, and a reset."""
    broker.create_topics({topic: 2, f"{topic}-copy": 1, f"{topic}-sums": 1, f"{topic}-bad": 1})
    text = (SOURCE + SINKS).format(topic=topic, folder=tmp_path)
    pipeline = load(text)
    send(broker, topic, [*orders(1, 10, 11, 12), b"nope"])
    reports = {each.query: each for each in run_to_end(spark, pipeline, tmp_path)}
    assert set(reports) == {f"{topic}.large", f"{topic}.totals", f"{topic}.dead-letters"}
    # Two sinks, and one scan.
    assert reports[f"{topic}.large"].rows == 5
    assert reports[f"{topic}.totals"].rows == 5

    send(broker, topic, orders(13, 2, 14))
    plan = plan_of(spark, pipeline, tmp_path)
    keys = [each["key"] for each in plan["sinks"]]
    assert keys == ["sinks.copy", "sinks.lake", "sinks.sums", "sinks.table"]
    assert "to read: 3 of 2 partitions" in plan_text(plan)
    assert f"query {topic}.totals: batch 0 is done" in plan_text(plan)
    run_to_end(spark, pipeline, tmp_path)
    wanted = Counter([10, 11, 12, 13, 14])
    assert amounts_of(broker, f"{topic}-copy") == in_lake(tmp_path) == wanted
    # State is updated once in a batch, although two sinks take its rows.
    sums = [(value["customer"], value["total"]) for value in values_of(broker, f"{topic}-sums")]
    assert Counter(sums) == Counter([("ann", 11), ("bob", 22), ("ann", 24), ("bob", 36)])
    assert [record.value for record in records_of(broker, f"{topic}-bad")] == [b"nope"]

    status = status_of(pipeline)
    groups = [f"{topic}.{name}" for name in ("copy", "lake", "sums", "table")]
    assert (status["groups"], status["lag"]) == (groups, 0)
    assert {row["group"] for row in status["partitions"]} == set(groups)
    assert [query["committed_batch_id"] for query in status["queries"]] == [1, 1, 1]

    planned = plan_reset(pipeline, None, -1)
    assert planned.groups == tuple(sorted([*groups, f"{topic}.dead-letters"]))
    execute_reset(pipeline, planned)
    # All sinks start from the same place.
    assert {(row["group"], row["lag"]) for row in status_of(pipeline)["partitions"]} == {
        (group, 0) for group in groups
    }
    assert [starting_offsets(pipeline, groups)["orders"]] == [
        starting_offsets(pipeline, [group])["orders"] for group in groups[:1]
    ]
    with broker.admin() as admin:
        admin.alter_group_offsets(groups[1], {TopicPartition(topic, 0): 0})
    with pytest.raises(InvalidConfig, match="are at different offsets, and their sinks share a query"):
        starting_offsets(pipeline, groups)


class BrokenBetween(FanOut):
    """Fails when the first sink has the batch."""

    def _write(self, *arguments: Any) -> None:
        super()._write(*arguments)
        raise InvalidConfig("between two sinks")


def test_a_batch_that_failed_between_two_sinks(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    load: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next run gives it to the second sink only. A sink that is added then would lack it, and is rejected."""
    broker.create_topics({topic: 1, f"{topic}-copy": 1, f"{topic}-bad": 1})
    text = (
        SOURCE.format(topic=topic) + SINKS.format(topic=topic, folder=tmp_path).partition("[sinks.sums]")[0]
    )
    pipeline = load(text)
    send(broker, topic, orders(10, 11))
    with monkeypatch.context() as patched:
        patched.setattr(PipelineRun, "fan_out_class", BrokenBetween)
        with pytest.raises(KafkaError, match="between two sinks"):
            run_to_end(spark, pipeline, tmp_path)
    wanted = Counter([10, 11])
    assert amounts_of(broker, f"{topic}-copy") == wanted
    assert not (tmp_path / "lake").exists()
    run_to_end(spark, pipeline, tmp_path)
    assert amounts_of(broker, f"{topic}-copy") == in_lake(tmp_path) == wanted

    added = text + '[sinks.more]\ntype = "delta"\nfrom = "large"\npath = "more"\n'
    with pytest.raises(
        InvalidConfig, match=r"sinks\.more: query .*\.large has done batches that this sink would lack"
    ):
        run_to_end(spark, load(added), tmp_path)
    single = SOURCE.format(topic=topic) + '[sink]\ntype = "delta"\nfrom = "large"\npath = "single"\n'
    with pytest.raises(InvalidConfig, match=r"from a time when the pipeline had \[sinks\]"):
        run_to_end(spark, load(single), tmp_path)
