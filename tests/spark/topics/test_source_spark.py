"""The source within Spark: what only a session can show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.model import TopicPartition
from barnabas.spark import register
from barnabas.spark.failures import told
from barnabas.spark.topics.schema import spark_schema
from barnabas.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BASE_MS = 1_704_067_200_000
WAIT_S = 240


@pytest.fixture(scope="module", autouse=True)
def _formats(spark: SparkSession) -> None:
    register(spark)


def fill(broker: Broker, topic: str, first: int, count: int) -> None:
    with broker.producer() as producer:
        for number in range(first, first + count):
            producer.send(
                topic,
                value=b"%d" % number,
                key=b"k" if number % 2 else None,
                partition=number % 2,
                timestamp_ms=BASE_MS + number * 1_000,
                headers=[("n", b"%d" % number)] if number % 3 == 0 else None,
            )
        producer.flush()


def load(spark: SparkSession, broker: Broker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_a_frame_of_a_topic(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 2})
    fill(broker, topic, 0, 100)
    frame = load(spark, broker, topic, includeHeaders="true", minPartitions="5")
    assert frame.schema == spark_schema(include_headers=True)
    first = frame.where("partition = 1").orderBy("offset").first()
    assert first is not None
    assert (bytes(first.value), bytes(first.key), first.offset, first.headers) == (b"1", b"k", 0, None)
    assert int(first.timestamp.timestamp() * 1_000) == BASE_MS + 1_000
    # A frame may be used again, and with other filters, or with none.
    assert numbers(frame) == list(range(100))
    assert frame.limit(3).count() == 3
    # Only the columns that are declared go to Spark.
    narrow = spark.read.format("barnabas").schema("value binary").option("subscribe", topic)
    assert numbers(narrow.option("kafka.bootstrap.servers", broker.bootstrap).load()) == list(range(100))


def test_filters_are_pushed_down(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create_topics({topic: 2})
    fill(broker, topic, 0, 100)
    condition = (
        "partition = 1 AND offset >= 10 AND offset < 40 AND timestamp < TIMESTAMP '2024-01-01 00:01:00 UTC'"
        " AND topic LIKE 'topic-%'"
    )
    expected = list(range(21, 60, 2))
    frame = load(spark, broker, topic, pushFilters="true").where(condition)
    assert numbers(frame) == expected
    plan = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "offset" not in plan.partition("RelationV2")[0]
    assert "StartsWith(topic" in plan
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert numbers(load(spark, broker, topic, pushFilters="true").where(condition)) == expected
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def run_available(spark: SparkSession, frame: DataFrame, checkpoint: Path) -> tuple[list[list[int]], Any]:
    """The numbers of each batch, and the query's last report."""
    batches: list[list[int]] = []

    def take(batch: DataFrame, _: int) -> None:
        batches.append(numbers(batch))

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S), "the query did not end"
        return batches, query.lastProgress
    finally:
        query.stop()


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create_topics({topic: 2})
    fill(broker, topic, 0, 30)
    group = f"group-of-{topic}"
    frame = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20)
        .option("kafka.group.id", group)
        .load()
    )
    batches, progress = run_available(spark, frame, tmp_path)
    assert batches == [list(range(20)), list(range(20, 30))]
    assert json.loads(progress["sources"][0]["latestOffset"]) == {topic: {"0": 15, "1": 15}}
    written = (tmp_path / "offsets" / "1").read_text().splitlines()[-1]
    assert json.loads(written) == {topic: {"0": 15, "1": 15}}
    with broker.admin() as admin:
        committed = admin.list_group_offsets(group)
        assert committed[TopicPartition(topic, 1)].offset == 15
        admin.create_partitions({topic: 3})
    fill(broker, topic, 30, 4)
    with broker.producer() as producer:
        producer.send(topic, value=b"99", partition=2).result()
    batches, _ = run_available(spark, frame, tmp_path)
    assert batches == [[30, 31, 32, 33, 99]]
    assert run_available(spark, frame, tmp_path)[0] == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"startingOfset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "nowhere"}, "there is no topic 'nowhere'"),
        ({"startingOffsets": '{"TOPIC":{"0":0}}'}, "must name all partitions that are read"),
    ],
)
def test_errors_on_the_driver_are_ours(
    spark: SparkSession, broker: Broker, topic: str, options: dict[str, str], complaint: str
) -> None:
    broker.create_topics({topic: 1})
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribe", topic).options(**options)
    with pytest.raises(Exception) as raised:
        reader.load().count()
    assert complaint in str(told(raised.value))


def test_a_schema_that_no_topic_has(spark: SparkSession, broker: Broker, topic: str) -> None:
    reader = spark.read.format("barnabas").schema("price double").option("subscribe", topic)
    with pytest.raises(Exception, match="a topic has no column 'price'"):
        reader.option("kafka.bootstrap.servers", broker.bootstrap).load().count()


def test_a_stream_with_expired_offsets_fails_with_the_remedy(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create_topics({topic: 2})
    fill(broker, topic, 0, 10)
    reader = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    run_available(spark, reader.load(), tmp_path)
    fill(broker, topic, 10, 10)
    with broker.admin() as admin:
        admin.delete_records({TopicPartition(topic, 0): 7})
    with pytest.raises(Exception) as raised:
        run_available(spark, reader.load(), tmp_path)
    assert "offsets 5 to 6" in str(told(raised.value))
    assert "failOnDataLoss=false" in str(told(raised.value))
