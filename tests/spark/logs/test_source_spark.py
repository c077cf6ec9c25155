"""The log source within Spark, on the directory of a broker that goes on writing: equal to what a consumer reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import barnabas.spark
from barnabas.testing import Broker
from tests.spark.log_reading import consume

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def write_history(broker: Broker, topic: str) -> None:
    """Plain records in all compressions, transactions committed and aborted one after the other."""
    broker.create_topics({topic: 2})
    for number, compression in enumerate(COMPRESSIONS):
        with (
            broker.producer(compression_type=compression, batch_size=16_384) as plain,
            broker.producer(
                compression_type=compression, transactional_id=f"{topic}-{compression}", batch_size=16_384
            ) as transactional,
        ):
            transactional.init_transactions()
            for round_ in range(2):
                transactional.begin_transaction()
                for index in range(150):
                    key = b"%d" % index
                    value = b"%d %d " % (number, round_) * 40
                    transactional.send(topic, b"t" + value, key, partition=index % 2, headers=[("n", key)])
                    plain.send(
                        topic, b"p" + value, None, partition=index % 2, timestamp_ms=1_700_000_000_000 + index
                    )
                plain.flush()
                transactional.flush()
                if round_ % 2:
                    transactional.commit_transaction()
                else:
                    transactional.abort_transaction()


def collected(frame: DataFrame) -> list[tuple[object, ...]]:
    rows = frame.selectExpr(
        "partition", "offset", "unix_millis(timestamp)", "timestampType", "key", "value", "headers"
    ).collect()
    return sorted(
        (
            row[0],
            row[1],
            row[2],
            row[3],
            *(each and bytes(each) for each in row[4:6]),
            tuple((h.key, bytes(h.value)) for h in row[6] or ()),
        )
        for row in rows
    )


def test_a_live_brokers_directory_is_read_as_a_consumer_reads_it(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    barnabas.spark.register(spark)
    write_history(broker, topic)
    # The broker would end it after a minute, which is less than Spark needs on a busy machine.
    undecided = broker.producer(transactional_id=f"{topic}-open", transaction_timeout_ms=600_000)
    try:
        undecided.init_transactions()
        undecided.begin_transaction()
        undecided.send(topic, b"undecided", partition=0).result(60)
        with broker.producer() as plain:
            plain.send(topic, b"behind it", partition=0).result(60)
        for isolation in ("read_uncommitted", "read_committed"):
            reader = spark.read.format("barnabas-log").option("topics", topic).option("isolation", isolation)
            frame = (
                reader.option("includeHeaders", True).option("splitBytes", "256k").load(str(broker.directory))
            )
            expected = consume(broker, topic, 2, isolation)
            assert len(expected) == (2250 if isolation == "read_committed" else 3002)
            assert collected(frame) == expected
        everything = consume(broker, topic, 2, "read_uncommitted")
        some = sum(row[0] == 1 and 100 <= row[1] < 700 for row in everything)
        of_topic = spark.read.format("barnabas-log").option("topics", topic)
        condition = "partition = 1 and offset >= 100 and offset < 700"
        pushed = of_topic.option("pushFilters", True).load(str(broker.directory)).where(condition)
        assert pushed.count() == some
        # A frame may be used again, with other filters, as any frame of Spark's.
        frame = of_topic.option("pushFilters", False).load(str(broker.directory))
        assert [frame.where(condition).count(), frame.count()] == [some, len(everything)]
        batches = spark.read.format("barnabas-log").option("mode", "batches").option("topics", topic)
        told = batches.load(str(broker.directory)).groupBy("isControl", "crcOk").sum("recordCount").collect()
        assert {(row[0], row[1]): row[2] for row in told} == {
            (False, True): len(everything),
            (True, True): 20,
        }
    finally:
        undecided.close()


def test_a_stream_goes_on_where_it_ended(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    barnabas.spark.register(spark)
    broker.create_topics({topic: 1})
    written: list[int] = []
    for number in range(2):
        with broker.producer() as producer:
            for each in range(50):
                producer.send(topic, b"%d" % (50 * number + each))
        found: list[int] = []

        def take(frame: DataFrame, _: int, found: list[int] = found) -> None:
            found.extend(int(bytes(row.value)) for row in frame.select("value").collect())

        query = (
            spark.readStream.format("barnabas-log")
            .option("topics", topic)
            .load(str(broker.directory))
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        assert sorted(found) == list(range(50 * number, 50 * number + 50))
        written += found
    assert len(written) == 100


def test_what_is_wrong_is_told_on_the_driver(spark: SparkSession, broker: Broker) -> None:
    barnabas.spark.register(spark)
    with pytest.raises(Exception, match="topics=absent: not in"):
        spark.read.format("barnabas-log").option("topics", "absent").load(str(broker.directory)).count()
