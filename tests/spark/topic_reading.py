"""Reads topics as a query does, without Spark: the same plans and tasks, in this process."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from barnabas.model import TopicPartition
from barnabas.spark.topics.options import check_batch, parse_options
from barnabas.spark.topics.plan import OffsetRange
from barnabas.spark.topics.schema import spark_schema
from barnabas.spark.topics.source import FilteringTopicReader, TopicReader
from barnabas.testing import Broker

Row = dict[str, Any]
BASE_MS = 1_704_067_200_000


def given(broker: Broker, topic: str, **options: object) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "fetchOffset.retryIntervalMs": "1",
        **{name.replace("__", "."): str(value) for name, value in options.items()},
    }


def reader(broker: Broker, topic: str, **options: object) -> FilteringTopicReader:
    parsed = parse_options(given(broker, topic, **options))
    check_batch(parsed)
    return FilteringTopicReader(parsed, spark_schema(include_headers=parsed.include_headers))


def rows(made: TopicReader) -> list[Row]:
    """Plans and reads as Spark does: the reader and its partitions go to tasks."""
    partitions = made.partitions()
    copy = pickle.loads(pickle.dumps(made))
    return [
        row
        for partition in pickle.loads(pickle.dumps(partitions))
        for batch in copy.read(partition)
        for row in batch.to_pylist()
    ]


def places(found: list[Row]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in found]


def fill(broker: Broker, topic: str, counts: list[int], **settings: Any) -> None:
    """Records of partition p have the values p-0, p-1 and so on, a second apart."""
    with broker.producer(**settings) as producer:
        for partition, count in enumerate(counts):
            for number in range(count):
                producer.send(
                    topic,
                    value=b"%d-%d" % (partition, number),
                    partition=partition,
                    timestamp_ms=BASE_MS + number * 1_000,
                )
        producer.flush()


def expire(broker: Broker, topic: str, offset: int) -> None:
    with broker.admin() as admin:
        admin.delete_records({TopicPartition(topic, 0): offset})


def bounds(planned: Sequence[InputPartition]) -> list[tuple[int, int, int]]:
    ranges = [each for each in planned if isinstance(each, OffsetRange)]
    assert len(ranges) == len(planned)
    return [(each.partition.partition, each.start_offset, each.end_offset) for each in ranges]
