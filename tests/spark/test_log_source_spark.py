"""The log source within Spark, on the directory of a broker that goes on writing: equal to what a consumer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import barnabas.spark
from barnabas.client.admin_results import NewTopic
from barnabas.testing import Broker
from tests.spark.log_reading import consume

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def write_history(broker: Broker, topic: str) -> None:
    """Plain records in all compressions, transactions committed and aborted one after the other."""
    with broker.admin() as admin:
        # Several segments, so that transactions reach over their ends.
        admin.create_topics([NewTopic(name=topic, partitions=2, configs={"segment.bytes": "1048576"})])
    for number, compression in enumerate(COMPRESSIONS):
        with (
            broker.producer(compression_type=compression, batch_size=16_384) as plain,
            broker.producer(
                compression_type=compression, transactional_id=f"{topic}-{compression}", batch_size=16_384
            ) as transactional,
        ):
            transactional.init_transactions()
            for round_ in range(4):
                transactional.begin_transaction()
                for index in range(400):
                    key = b"%d" % index
                    value = b"%d %d " % (number, round_) * 40
                    transactional.send(topic, b"t" + value, key, partition=index % 2, headers=[("n", key)])
                    plain.send(
                        topic, b"p" + value, None, partition=index % 2, timestamp_ms=1_700_000_000_000 + index
                    )
                plain.flush()
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
    undecided = broker.producer(transactional_id=f"{topic}-open")
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
            assert len(expected) > (2000 if isolation == "read_committed" else 4000)
            assert collected(frame) == expected
        filtered = (
            spark.read.format("barnabas-log")
            .option("topics", topic)
            .load(str(broker.directory))
            .where("partition = 1 and offset >= 100 and offset < 1700")
        )
        everything = consume(broker, topic, 2, "read_uncommitted")
        assert filtered.count() == sum(row[0] == 1 and 100 <= row[1] < 1700 for row in everything)
        batches = spark.read.format("barnabas-log").option("mode", "batches").option("topics", topic)
        told = batches.load(str(broker.directory)).groupBy("isControl", "crcOk").sum("recordCount").collect()
        assert {(row[0], row[1]): row[2] for row in told} == {
            (False, True): len(everything),
            (True, True): 40,
        }
    finally:
        undecided.close()


def test_what_is_wrong_is_told_on_the_driver(spark: SparkSession, broker: Broker) -> None:
    barnabas.spark.register(spark)
    with pytest.raises(Exception, match="topics=absent: not in"):
        spark.read.format("barnabas-log").option("topics", "absent").load(str(broker.directory)).count()
