"""Spark's own connector beside ours, on our broker and on Apache Kafka: the same rows, offsets and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import barnabas
from barnabas.spark import register
from barnabas.testing import Broker
from tests.peers.kafka_peer import PeerUnavailable
from tests.spark.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.peer]

BASE_MS = 1_704_067_200_000
WAIT_S = 240
OURS = "barnabas"
THEIRS = "kafka"


@pytest.fixture(scope="module")
def connected(spark: SparkSession) -> SparkSession:
    """The session of all tests, with the connector's jars added while it runs."""
    register(spark)
    try:
        for jar in connector_jars():
            spark.sql(f"ADD JAR '{jar}'")
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    return spark


@pytest.fixture(params=["Barnabas", "Apache Kafka 4.3.1"])
def address(request: pytest.FixtureRequest, broker: Broker) -> str:
    if request.param == "Barnabas":
        return broker.bootstrap
    found: str = request.getfixturevalue("apache_kafka")
    return found


def create(address: str, topic: str, partitions: int = 2) -> None:
    with barnabas.Admin(bootstrap_servers=address) as admin:
        admin.create_topics({topic: partitions})


def fill(address: str, topic: str, *, compression: str = "none") -> None:
    """Records of all kinds, some of them in transactions that were committed or aborted."""
    transactional = {"transactional_id": f"of-{topic}", "compression_type": compression}
    with barnabas.Producer(bootstrap_servers=address, **transactional) as producer:
        producer.init_transactions()
        for number in range(30):
            if number % 10 == 0:
                producer.begin_transaction()
            producer.send(
                topic,
                value=None if number % 7 == 0 else b"value %d" % number,
                key=None if number % 3 == 0 else b"key %d" % (number % 5),
                partition=number % 2,
                timestamp_ms=BASE_MS + number * 1_000,
                headers=[("h", b"%d" % number), ("null", None), ("h", b"")] if number % 4 == 0 else None,
            )
            if number == 19:
                # What was not sent yet would not be sent any more.
                producer.flush()
                producer.abort_transaction()
            elif number % 10 == 9:
                producer.commit_transaction()


def load(spark: SparkSession, kind: str, address: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", address)
    settings = {name.replace("__", "."): value for name, value in options.items()}
    return reader.option("subscribe", topic).options(**settings).load()


def in_order(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def test_both_sources_read_the_same(connected: SparkSession, address: str, topic: str) -> None:
    create(address, topic)
    fill(address, topic, compression="zstd")
    for options in [
        {"includeHeaders": "true"},
        {"kafka__isolation__level": "read_committed"},
        {"startingTimestamp": str(BASE_MS + 4_000), "endingTimestamp": str(BASE_MS + 25_000)},
        {
            "startingOffsets": f'{{"{topic}":{{"0":3,"1":-2}}}}',
            "endingOffsets": f'{{"{topic}":{{"0":-1,"1":9}}}}',
        },
    ]:
        ours, theirs = (load(connected, kind, address, topic, **options) for kind in (OURS, THEIRS))
        assert ours.schema == theirs.schema
        found = in_order(ours)
        assert found == in_order(theirs)
        assert found


def test_either_sink_is_read_by_either_source(connected: SparkSession, address: str, topic: str) -> None:
    source = f"{topic}-source"
    create(address, source)
    fill(address, source)
    rows = load(connected, THEIRS, address, source, includeHeaders="true").selectExpr(
        "key", "value", "headers", "timestamp"
    )
    written = {}
    for kind in (OURS, THEIRS):
        target = f"{topic}-by-{kind}"
        create(address, target, 3)
        writer = rows.write.format(kind).option("kafka.bootstrap.servers", address).option("topic", target)
        writer.option("includeHeaders", "true").mode("append").save()
        ours, theirs = (
            in_order(load(connected, reading, address, target, includeHeaders="true"))
            for reading in (OURS, THEIRS)
        )
        assert ours == theirs
        assert len(ours) == 30
        written[kind] = ours

    def content(row: Row) -> tuple[Any, ...]:
        # Records without a key go wherever the producer likes.
        partition = -1 if row.key is None else row.partition
        headers = row.headers and [tuple(header) for header in row.headers]
        return partition, row.key or b"", row.value or b"", str(headers)

    assert sorted(map(content, written[OURS])) == sorted(map(content, written[THEIRS]))


def run(spark: SparkSession, kind: str, address: str, topic: str, checkpoint: Path) -> list[tuple[int, int]]:
    """Partitions and offsets of what a query reads that goes on from the checkpoint and ends by itself."""
    reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", address)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    found: list[tuple[int, int]] = []

    def take(batch: DataFrame, _: int) -> None:
        found.extend((row.partition, row.offset) for row in batch.select("partition", "offset").collect())

    writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(WAIT_S), "the query did not end"
    finally:
        query.stop()
    return sorted(found)


def test_either_goes_on_from_the_others_checkpoint(
    connected: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create_topics({topic: 2})
    for round_, kind in enumerate([THEIRS, OURS, THEIRS]):
        with broker.producer() as producer:
            for number in range(6):
                producer.send(topic, value=b"%d" % number, partition=number % 2)
            producer.flush()
        assert run(connected, kind, broker.bootstrap, topic, tmp_path) == [
            (partition, round_ * 3 + offset) for partition in range(2) for offset in range(3)
        ]
