"""Reads log directories as a query does, without Spark: the same planner and tasks, in this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from barnabas.model import TopicPartition
from barnabas.spark.logs.options import parse_options
from barnabas.spark.logs.rows import check_schema, spark_schema
from barnabas.spark.logs.source import FilteringLogReader, Task
from barnabas.testing import Broker
from tests.consuming import read_up_to

Row = dict[str, Any]


class Reading:
    """A query, planned: `tasks` may be looked at before `rows` runs them."""

    def __init__(
        self,
        path: str | Path,
        *,
        filters: Iterable[Filter] = (),
        schema: StructType | None = None,
        **options: object,
    ) -> None:
        parsed = parse_options({"path": str(path), **{name: str(value) for name, value in options.items()}})
        if schema is not None:
            check_schema(parsed, schema)
        self._reader = FilteringLogReader(parsed, schema or spark_schema(parsed))
        self.filters_left = list(self._reader.pushFilters(list(filters)))
        self.tasks = [task for task in self._reader.partitions() if isinstance(task, Task)]

    def rows(self) -> list[Row]:
        return [row for task in self.tasks for batch in self._reader.read(task) for row in batch.to_pylist()]


def read_rows(path: str | Path, **options: Any) -> list[Row]:
    return Reading(path, **options).rows()


def consume(broker: Broker, topic: str, partitions: int, isolation: str) -> list[tuple[Any, ...]]:
    """What a consumer reads of a topic up to its end: partition, offset, time, type of time, key, value, headers."""
    chosen = [TopicPartition(topic, number) for number in range(partitions)]
    with broker.consumer(isolation_level=isolation, group_id=None) as consumer:
        consumer.assign(chosen)
        found = read_up_to(consumer, consumer.end_offsets(*chosen))
    rows = [
        (
            record.partition,
            record.offset,
            record.timestamp_ms,
            int(record.timestamp_type),
            record.key,
            record.value,
            record.headers,
        )
        for record in found
    ]
    return sorted(rows, key=lambda row: row[:2])
