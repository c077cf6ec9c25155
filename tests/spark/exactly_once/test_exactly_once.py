"""Batches in transactions, by queries of one session on our broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.producer.partitioners import partition_for_key
from barnabas.client.producer.producer import Producer
from barnabas.errors import InvalidConfig, InvalidTopicException, ProducerFenced, TransactionAbortable
from barnabas.model import TopicPartition
from barnabas.spark import register
from barnabas.testing import Broker
from tests.spark.sink_reading import committed_records, committed_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark", reason="pyspark is needed: install barnabas[spark]")

from barnabas.spark.exactly_once.marker import MarkerMismatch
from barnabas.spark.exactly_once.sink import (
    ATTEMPTS_MAX,
    BatchLost,
    TransactionalTopicSink,
    reset,
    starting_offsets,
)

QUERY = "the-query"
STREAM_TIMEOUT_S = 240


@pytest.fixture
def out(broker: Broker, topic: str) -> str:
    broker.create_topics({topic: 3, f"{topic}-dead": 1})
    return topic


def sink_of(broker: Broker, out: str, checkpoint: Path, **others: Any) -> TransactionalTopicSink:
    return TransactionalTopicSink(
        {"kafka.bootstrap.servers": broker.bootstrap},
        transactional_id=f"id-{out}",
        checkpoint=str(checkpoint),
        **{"topic": out, "group": f"group-{out}", **others},
    )


def planned(checkpoint: Path, batch_id: int, source: str = '{"logOffset":0}') -> None:
    """What Spark writes down before it runs a batch."""
    folder = checkpoint / "offsets"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(batch_id)).write_text(f'v1\n{{"batchTimestampMs":{batch_id}}}\n{source}')


def numbers(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end, 1, 2).selectExpr("cast(id AS string) AS value")


def texts(*ranges: range) -> list[str]:
    return sorted(str(number) for each in ranges for number in each)


def test_batches_are_in_once(spark: SparkSession, broker: Broker, out: str, tmp_path: Path) -> None:
    with sink_of(broker, out, tmp_path) as sink:
        for batch_id in range(2):
            planned(tmp_path, batch_id)
            for _ in range(2):
                sink.write_batch(numbers(spark, batch_id * 10, batch_id * 10 + 10), batch_id, QUERY)
    # Another driver comes upon the batch that is in, and goes on with the next.
    with sink_of(broker, out, tmp_path) as sink:
        sink.write_batch(numbers(spark, 10, 20), 1, QUERY)
        planned(tmp_path, 2)
        sink.write_batch(numbers(spark, 20, 30), 2, QUERY)
    assert committed_values(broker.bootstrap, out) == texts(range(30))


def test_rows_with_all_columns_and_dead_letters(
    spark: SparkSession, broker: Broker, out: str, tmp_path: Path
) -> None:
    frame = spark.range(100).selectExpr(
        "cast(id AS string) AS key",
        "cast(id AS string) AS value",
        f"if(id % 10 = 0, '{out}-dead', NULL) AS topic",
        "if(id % 10 = 1, 2, NULL) AS partition",
        "timestamp_millis(id + 1000) AS timestamp",
        "array(struct('h' AS key, cast('x' AS binary) AS value)) AS headers",
        "id",
    )
    planned(tmp_path, 0)
    with sink_of(broker, out, tmp_path) as sink:
        sink.write_batch(frame, 0, QUERY)
    records = committed_records(broker.bootstrap, out)
    assert sorted(int(record.key) for record in records) == [number for number in range(100) if number % 10]
    for record in records:
        number = int(record.key)
        assert record.partition == (2 if number % 10 == 1 else partition_for_key(record.key, 3))
        assert (record.value, record.timestamp_ms) == (record.key, 1000 + number)
        assert record.headers == (("h", b"x"),)
    assert committed_values(broker.bootstrap, f"{out}-dead") == texts(range(0, 100, 10))


def test_a_driver_that_was_replaced_is_fenced(
    spark: SparkSession, broker: Broker, out: str, tmp_path: Path
) -> None:
    planned(tmp_path, 0)
    planned(tmp_path, 1)
    with sink_of(broker, out, tmp_path) as first, sink_of(broker, out, tmp_path) as second:
        first.write_batch(numbers(spark, 0, 5), 0, QUERY)
        second.write_batch(numbers(spark, 0, 5), 0, QUERY)
        with pytest.raises(ProducerFenced, match="another driver uses transactional id"):
            first.write_batch(numbers(spark, 5, 10), 1, QUERY)
        second.write_batch(numbers(spark, 5, 10), 1, QUERY)
    assert committed_values(broker.bootstrap, out) == texts(range(10))


def test_what_is_wrong_is_told(spark: SparkSession, broker: Broker, out: str, tmp_path: Path) -> None:
    planned(tmp_path, 0)
    planned(tmp_path, 3)
    frame = numbers(spark, 0, 3)
    with sink_of(broker, out, tmp_path) as sink:
        with pytest.raises(InvalidConfig, match="give the sink the query's own checkpointLocation"):
            sink.write_batch(frame, 9, QUERY)
        with pytest.raises(InvalidConfig, match="needs a column 'value'"):
            sink.write_batch(frame.selectExpr("value AS v"), 0, QUERY)
        with pytest.raises(MarkerMismatch, match="has no marker, and the checkpoint is at batch 3"):
            sink.write_batch(frame, 3, QUERY)
        with pytest.raises(InvalidConfig, match="foreachBatch"):
            sink(frame, 0)
    with (
        sink_of(broker, out, tmp_path, topic=None) as sink,
        pytest.raises(InvalidConfig, match="the query reads no topics"),
    ):
        sink.write_batch(frame.selectExpr("value", f"'{out}' AS topic"), 0, QUERY)
    planned(tmp_path, 0, json.dumps({f"{out}-dead": {"0": 0}}))
    with (
        sink_of(broker, out, tmp_path, topic=None, group=f"nameless-{out}") as sink,
        pytest.raises(InvalidTopicException, match="null in its column 'topic'"),
    ):
        sink.write_batch(frame.selectExpr("value", "cast(NULL AS string) AS topic"), 0, QUERY)
    assert committed_values(broker.bootstrap, out) == []


def test_a_batch_that_fails_is_aborted_and_written_when_it_comes_again(
    spark: SparkSession, broker: Broker, out: str, tmp_path: Path
) -> None:
    failures = [ZeroDivisionError("once"), BatchLost("a worker was lost"), BatchLost("and again")]

    class Failing(TransactionalTopicSink):
        def _run_tasks(self, *arguments: Any) -> None:
            super()._run_tasks(*arguments)
            if failures:
                raise failures.pop(0)

    planned(tmp_path, 0)
    with Failing(
        {"bootstrap.servers": broker.bootstrap},
        transactional_id=f"id-{out}",
        group=f"group-{out}",
        topic=out,
        checkpoint=str(tmp_path),
    ) as sink:
        with pytest.raises(ZeroDivisionError):
            sink.write_batch(numbers(spark, 0, 10), 0, QUERY)
        sink.write_batch(numbers(spark, 0, 10), 0, QUERY)
        assert not failures
        failures.extend([BatchLost("always")] * ATTEMPTS_MAX)
        planned(tmp_path, 1)
        with pytest.raises(TransactionAbortable, match="begun 3 times and could not be written: always"):
            sink.write_batch(numbers(spark, 10, 20), 1, QUERY)
    assert committed_values(broker.bootstrap, out) == texts(range(10))


def fed(broker: Broker, name: str, values: range) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in values:
            producer.send(name, str(number), key=str(number % 5))
        producer.flush()


def stream(spark: SparkSession, broker: Broker, name: str, starting: str = "earliest") -> DataFrame:
    register(spark)
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", name)
        .option("startingOffsets", starting)
        .load()
    )


def ran(frame: DataFrame, sink: TransactionalTopicSink, checkpoint: Path, mode: str = "append") -> None:
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(STREAM_TIMEOUT_S)


def test_a_query_goes_on_after_its_checkpoint_was_deleted(
    spark: SparkSession, broker: Broker, out: str, tmp_path: Path
) -> None:
    source = f"{out}-source"
    broker.create_topics({source: 2})
    fed(broker, source, range(50))
    kafka = {"kafka.bootstrap.servers": broker.bootstrap}
    group = f"group-{out}"
    with sink_of(broker, out, tmp_path / "first") as sink:
        ran(stream(spark, broker, source).select("key", "value"), sink, tmp_path / "first")
        offsets = sink.committed_offsets()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        ends = admin.list_offsets([TopicPartition(source, 0), TopicPartition(source, 1)])
    assert offsets == {partition: end.offset for partition, end in ends.items()}
    fed(broker, source, range(50, 80))
    with sink_of(broker, out, tmp_path / "second") as sink:
        with pytest.raises(Exception, match="the checkpoint was deleted") as refused:
            ran(stream(spark, broker, source).select("key", "value"), sink, tmp_path / "second")
        assert "barnabas pipeline reset" in str(refused.value)
    shutil.rmtree(tmp_path / "second")
    with sink_of(broker, out, tmp_path / "second", take_over=True) as sink:
        frame = stream(spark, broker, source, starting_offsets(kafka, group))
        ran(frame.select("key", "value"), sink, tmp_path / "second")
    assert committed_values(broker.bootstrap, out) == texts(range(80))
    reset(kafka, transactional_id=f"id-{out}", group=group)
    assert starting_offsets(kafka, group) == "{}"
    reset(kafka, transactional_id=f"id-{out}", group=group)


def test_state_over_a_batch_that_is_skipped(
    spark: SparkSession, broker: Broker, out: str, tmp_path: Path
) -> None:
    source = f"{out}-source"
    broker.create_topics({source: 2})

    def run() -> None:
        counts = stream(spark, broker, source).groupBy("key").count()
        with sink_of(broker, out, tmp_path) as sink:
            ran(counts.selectExpr("key", "cast(count AS string) AS value"), sink, tmp_path, "update")

    def forget_end(batch_id: int) -> None:
        """As if the driver had been killed after the transaction and before Spark noted the end of the batch."""
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (tmp_path / "commits" / name).unlink()

    fed(broker, source, range(20))
    run()
    forget_end(0)
    fed(broker, source, range(20, 50))
    run()
    forget_end(1)
    run()
    fed(broker, source, range(50, 60))
    run()
    last = {record.key: int(record.value or b"") for record in committed_records(broker.bootstrap, out)}
    again = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", source)
        .load()
        .groupBy("key")
        .count()
    )
    assert last == {bytes(row.key): row["count"] for row in again.collect()}
    # Five keys in each of three batches, none of them twice.
    assert len(committed_records(broker.bootstrap, out)) == 15
