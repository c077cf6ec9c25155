"""Reads log directories as a query does, without Spark: the same planner and tasks, in this process."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from barnabas.spark.log_source import FilteringLogReader, Task
from barnabas.spark.log_source_options import parse_options
from barnabas.spark.log_source_rows import check_schema, spark_schema

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
