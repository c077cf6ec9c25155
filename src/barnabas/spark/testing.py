"""Pipelines on small data, without a broker, for tests of their files and functions.

    from barnabas.spark.testing import record, run_pipeline

    def test_revenue(spark):
        done = run_pipeline(spark, "revenue.toml", orders=[
            record({"id": 1, "product": "books-1", "cents": 1800, "at": "2026-05-01T09:00:00Z"}),
            record(b"{nope"),
        ])
        assert [row["euros"] for row in done.values] == [18.0]
        assert len(done.dead_letters) == 1

The rows that a test gives replace the sources; decoding, steps and the sink's format are the pipeline's own. Streams
are read as one batch of all rows: what Spark would write in several batches comes as one final result, and watermarks
drop nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.errors import PySparkException

from barnabas.errors import InvalidConfig
from barnabas.spark.failures import told
from barnabas.spark.pipeline.frames import FrameBuilder
from barnabas.spark.pipeline.load import load_pipeline
from barnabas.spark.pipeline.model import LogSource, Pipeline, Source, TopicSource
from barnabas.spark.topics.schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows: TypeAlias = "Sequence[Record | Mapping[str, Any]] | DataFrame"

DEFAULT_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
CREATE_TIME: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of a topic; `record` makes one."""

    value: bytes | None
    key: bytes | None = None
    topic: str | None = None
    partition: int = 0
    timestamp: datetime = DEFAULT_TIME
    headers: tuple[tuple[str, bytes], ...] = ()


def record(
    value: object,
    *,
    key: str | bytes | None = None,
    topic: str | None = None,
    partition: int = 0,
    timestamp: datetime = DEFAULT_TIME,
    headers: Iterable[tuple[str, bytes]] = (),
) -> Record:
    """A record with this value: bytes and None as they are, text in UTF-8, and everything else as JSON."""
    return Record(
        value=_bytes(value),
        key=key.encode() if isinstance(key, str) else key,
        topic=topic,
        partition=partition,
        timestamp=timestamp,
        headers=tuple(headers),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a pipeline makes of its rows."""

    sinks: Mapping[str, list[dict[str, Any]]]
    """The rows for each of several sinks, by the sink's name; for one sink the name is `sink`."""
    dead_letters: list[dict[str, Any]]
    """The records that cannot be decoded, as they would be written to the topic of dead letters."""
    steps: Mapping[str, DataFrame]
    """The DataFrame of each source and step, by its name."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows for the sink. For a topic they have key, value and what else a record has."""
        return self.sinks[self._only_sink()]

    @property
    def values(self) -> list[Any]:
        """The values of the records for a topic, parsed as JSON; None for a record without a value."""
        return self.values_of(self._only_sink())

    def values_of(self, sink: str) -> list[Any]:
        """The values for one of several sinks, as in `values`."""
        return [None if row["value"] is None else json.loads(row["value"]) for row in self.sinks[sink]]

    def _only_sink(self) -> str:
        names = list(self.sinks)
        if len(names) != 1:
            raise InvalidConfig(
                f"there are several sinks: use sinks[name] or values_of(name) with {', '.join(names)}"
            )
        return names[0]


def run_pipeline(
    spark: SparkSession,
    file: str | os.PathLike[str],
    *,
    environment: Mapping[str, str] | None = None,
    **sources: Rows,
) -> Result:
    """Runs the pipeline of a file on rows for each of its sources, in a session of any kind.

    The rows of topics and log directories are records (`record`), or dicts, which are taken as their values. The rows
    of files and databases are dicts by column. A DataFrame with the columns of the source will do for all.
    `environment` has the variables that the file uses; the default is the environment of the process.

    Raises the error that would stop the pipeline.
    """
    path = Path(file)
    pipeline = load_pipeline(path, environment)
    for name in sources:
        if name not in pipeline.sources:
            known = ", ".join(pipeline.sources)
            raise InvalidConfig(f"{path}: there is no source {name}; there are {known}")
    missing = [name for name in pipeline.sources if name not in sources]
    if missing:
        raise InvalidConfig(f"{path}: give the rows of {', '.join(missing)}; [] means that there are none")
    try:
        frames = _Builder(spark, _as_tables(pipeline), path.parent, given=sources).build()
        rows = {
            output.key.removeprefix("sinks."): [each.asDict(recursive=True) for each in frame.collect()]
            for output, frame in frames.outputs
        }
        letters = [] if frames.letters is None else frames.letters.collect()
    except PySparkException as error:
        raise told(error) from error
    return Result(
        sinks={name: [_with_bytes(row) for row in found] for name, found in rows.items()},
        dead_letters=[_with_bytes(each.asDict(recursive=True)) for each in letters],
        steps=frames.views,
    )


def _as_tables(pipeline: Pipeline) -> Pipeline:
    """The pipeline with streams read as tables, which have dead letters all the same."""
    sources = {name: replace(source, as_table=True) for name, source in pipeline.sources.items()}
    return replace(pipeline, sources=sources)


class _Builder(FrameBuilder):
    """Takes the rows of sources from the test."""

    __slots__ = ("_given",)

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, folder: Path, *, given: Mapping[str, Rows]
    ) -> None:
        super().__init__(spark, pipeline, folder)
        self._given = given

    def _read(self, name: str, source: Source) -> DataFrame:
        from pyspark.sql import DataFrame

        rows = self._given[name]
        if isinstance(rows, DataFrame):
            return rows
        if isinstance(source, TopicSource | LogSource):
            default = name if isinstance(source, LogSource) or not source.topics else source.topics[0]
            records = [each if isinstance(each, Record) else record(each) for each in rows]
            return self.spark.createDataFrame(
                _tuples(records, default, with_headers=source.headers),
                spark_schema(include_headers=source.headers),
            )
        schema = getattr(source, "schema", None)
        given = [dict(each) for each in rows if not isinstance(each, Record)]
        if len(given) < len(rows):
            raise InvalidConfig(f"sources.{name}: records are for topics; give dicts by column")
        if schema is None and not given:
            raise InvalidConfig(f"sources.{name}: its columns are not known: give a DataFrame without rows")
        return self.spark.createDataFrame(given, schema)


def _tuples(records: Sequence[Record], default: str, *, with_headers: bool) -> list[tuple[Any, ...]]:
    """Rows in the order of the source's columns, with the next offset in each partition."""
    offsets: dict[tuple[str, int], int] = {}
    made = []
    for each in records:
        where = each.topic or default, each.partition
        offset = offsets[where] = offsets.get(where, -1) + 1
        row: tuple[Any, ...] = (each.key, each.value, *where, offset, each.timestamp, CREATE_TIME)
        made.append((*row, list(each.headers) or None) if with_headers else row)
    return made


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _with_bytes(row: dict[str, Any]) -> dict[str, Any]:
    """Spark returns bytearrays, which cannot be compared in sets."""
    return {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.items()}


__all__ = ["Record", "Result", "record", "run_pipeline"]
