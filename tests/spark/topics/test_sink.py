"""Rows to topics, at least once, by queries of one session on our broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.client.producer.partitioners import partition_for_key
from barnabas.spark import register
from barnabas.testing import Broker
from tests.spark.sink_reading import committed_records, committed_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM_TIMEOUT_S = 240


@pytest.fixture
def out(spark: SparkSession, broker: Broker, topic: str) -> str:
    register(spark)
    broker.create_topics({topic: 3})
    return topic


def write(frame: DataFrame, broker: Broker, **options: str) -> None:
    writer = frame.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", broker.bootstrap)
    writer.options(**options).save()


def test_rows_of_a_batch(spark: SparkSession, broker: Broker, out: str) -> None:
    frame = spark.range(1_000).selectExpr(
        "if(id % 2 = 0, cast(id AS string), NULL) AS key",
        "cast(concat('v', id) AS binary) AS value",
        "if(id % 5 = 0, cast(id % 3 AS int), NULL) AS partition",
        "timestamp_millis(id) AS timestamp",
        "if(id % 7 = 0, array(struct('h' AS key, cast('x' AS binary) AS value)), NULL) AS headers",
        "'elsewhere' AS topic",
        "id AS ignored",
    )
    # As in Spark's kafka format, the option stands above the column.
    write(frame, broker, topic=out)
    records = committed_records(broker.bootstrap, out)
    assert sorted(record.timestamp_ms for record in records) == list(range(1_000))
    for record in records:
        number = record.timestamp_ms
        assert record.value == b"v%d" % number
        assert record.key == (None if number % 2 else b"%d" % number)
        assert record.headers == ((("h", b"x"),) if number % 7 == 0 else ())
        if number % 5 == 0:
            assert record.partition == number % 3
        elif record.key is not None:
            assert record.partition == partition_for_key(record.key, 3)


def test_rows_choose_their_topics(spark: SparkSession, broker: Broker, out: str) -> None:
    broker.create_topics({f"{out}-other": 1})
    write(
        spark.range(10).selectExpr("string(id) AS value", f"if(id < 3, '{out}', '{out}-other') AS topic"),
        broker,
    )
    assert committed_values(broker.bootstrap, out) == ["0", "1", "2"]
    assert committed_values(broker.bootstrap, f"{out}-other") == [str(number) for number in range(3, 10)]


def test_a_stream(spark: SparkSession, broker: Broker, out: str, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr("string(id) AS value")
    frame.write.parquet(str(tmp_path / "rows"))
    query = (
        spark.readStream.schema("value string")
        .parquet(str(tmp_path / "rows"))
        .writeStream.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", out)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(STREAM_TIMEOUT_S)
    assert committed_values(broker.bootstrap, out) == sorted(str(number) for number in range(100))


def test_what_is_wrong_is_told_before_any_task(spark: SparkSession, broker: Broker, out: str) -> None:
    rows = spark.range(3).selectExpr("string(id) AS value")
    with pytest.raises(Exception, match="needs a column 'value'"):
        write(rows.selectExpr("value AS v"), broker, topic=out)
    with pytest.raises(Exception, match="did you mean topic"):
        write(rows, broker, topics_=out)
    with pytest.raises(Exception, match="no topic to write to"):
        write(rows, broker)
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        rows.write.format("barnabas").mode("overwrite").option(
            "kafka.bootstrap.servers", broker.bootstrap
        ).option("topic", out).save()
    assert committed_values(broker.bootstrap, out) == []


def test_a_broker_with_tls_and_a_password(spark: SparkSession) -> None:
    register(spark)
    with Broker(security="sasl_ssl", users={"ann": "secret"}, topics={"t": 2}) as secured:
        security = {f"kafka.{name}": value for name, value in secured.security_settings.items()}
        write(
            spark.range(10).selectExpr("cast(cast(id AS string) AS binary) AS value"),
            secured,
            topic="t",
            **security,
        )
        found = (
            spark.read.format("barnabas")
            .option("kafka.bootstrap.servers", secured.bootstrap)
            .options(subscribe="t", **security)
            .load()
        )
        assert sorted(bytes(row["value"]) for row in found.collect()) == [
            b"%d" % number for number in range(10)
        ]
