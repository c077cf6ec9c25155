"""A pipeline's DataFrames: sources read and decoded, steps over them, rows in the form for the sink.

Rows of a source with a format have the fields of its schema, and the other parts of the record in columns that begin
with `_`: `_key`, `_topic`, `_partition`, `_offset`, `_timestamp`. Records that cannot be decoded are separated here, so
that every step sees only good rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from barnabas.errors import InvalidConfig
from barnabas.spark.formats.columns import ERROR, FormatSpec, decode, encode
from barnabas.spark.pipeline.flows import Flow, Output, flows_of
from barnabas.spark.pipeline.functions import load_function
from barnabas.spark.pipeline.model import (
    FileSource,
    Format,
    LogSource,
    Pipeline,
    Source,
    TopicSink,
    TopicSource,
    Transform,
    Watermark,
)
from barnabas.spark.pipeline.options import FAIL_FAST, SOURCE_FORMATS, fails_at_bad_lines, reader_options
from barnabas.spark.pipeline.rules import keep, left_unread, require, require_parsed, with_checks
from barnabas.spark.registry import register

RECORD_PREFIX: Final = "_"
SINK_COLUMNS: Final = ("key", "value", "topic", "partition", "headers", "timestamp")
# Headers of a dead letter, as Connect names its own.
LETTER_HEADER_PREFIX: Final = "__barnabas.errors."
LETTER_ORIGIN: Final = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFrame:
    """The DataFrame of a query: rows in the form for its sink, or as they are if it has several sinks."""

    flow: Flow
    frame: DataFrame
    is_read_twice: bool
    """Whether a source is read beside the result as well, to find the records that cannot be decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """The DataFrames of a pipeline; `letters` are the records that cannot be decoded, as rows for a topic."""

    views: Mapping[str, DataFrame]
    flows: tuple[FlowFrame, ...]
    letters: DataFrame | None = None

    @property
    def outputs(self) -> Iterator[tuple[Output, DataFrame]]:
        """Each sink, and its rows in the form for it."""
        for each in self.flows:
            is_one = len(each.flow.outputs) == 1
            for output in each.flow.outputs:
                yield output, each.frame if is_one else output_rows(each.frame, output)


@dataclass(slots=True)
class FrameBuilder:
    """Builds the DataFrames of a pipeline in its own session, whose views no other pipeline sees."""

    spark: SparkSession
    pipeline: Pipeline
    folder: Path
    starting: Mapping[str, str] = field(default_factory=dict)
    """Where sources of topics begin, as Spark's JSON of offsets, where the file does not say."""
    ruled: dict[str, DataFrame] = field(default_factory=dict, init=False)
    """The rows of sources that fail the query where they are bad."""

    def open_session(self) -> None:
        self.spark = self.spark.newSession()
        for name, value in self.pipeline.spark.items():
            if self.spark.conf.isModifiable(name):
                self.spark.conf.set(name, value)

    def build(self) -> Frames:
        self.open_session()
        register(self.spark)
        views: dict[str, DataFrame] = {}
        letters: list[DataFrame] = []
        for name, source in self.pipeline.sources.items():
            frame = self._read(name, source)
            if isinstance(source, TopicSource | LogSource):
                frame, bad = self.records(name, frame, source)
                if bad is not None:
                    letters.append(bad)
            elif isinstance(source, FileSource) and fails_at_bad_lines(source):
                frame = self.ruled[name] = require_parsed(frame, name)
            views[name] = self.view(name, frame, getattr(source, "watermark", None))
        previous = next(iter(views))
        for transform in self.pipeline.transforms:
            frame = self._transformed(transform, views, previous)
            previous = transform.name
            views[previous] = self.view(previous, frame, transform.watermark)
        together = reduce(lambda one, other: one.unionByName(other), letters) if letters else None
        flows = tuple(self._flow_frame(flow, views[flow.rows]) for flow in flows_of(self.pipeline))
        return Frames(views=views, flows=flows, letters=together)

    def _flow_frame(self, flow: Flow, result: DataFrame) -> FlowFrame:
        # Rows that do not fit a sink are an error now, and not with the first batch.
        formed = [output_rows(result, output) for output in flow.outputs]
        if len(formed) == 1:
            (result,) = formed
        unread = left_unread(self.spark, result, self.ruled)
        checked = with_checks(result, [self.ruled[name] for name in unread])
        return FlowFrame(flow=flow, frame=checked, is_read_twice=bool(unread))

    def view(self, name: str, frame: DataFrame, watermark: Watermark | None) -> DataFrame:
        if watermark is not None:
            _require(frame, watermark.column, f"the watermark of {name}")
            frame = frame.withWatermark(watermark.column, f"{watermark.delay} milliseconds")
        frame.createOrReplaceTempView(name)
        return frame

    def _read(self, name: str, source: Source) -> DataFrame:
        options = reader_options(source)
        if isinstance(source, TopicSource) and not source.as_table:
            options["startingOffsets"] = self.starting.get(name, options["startingOffsets"])
        reader = self.spark.read if source.as_table else self.spark.readStream
        if isinstance(source, FileSource):
            if source.schema is not None:
                reader = reader.schema(source.schema)
            if fails_at_bad_lines(source):
                options["mode"] = FAIL_FAST
            return reader.format(source.file_format).options(**options).load(source.path)
        return reader.format(SOURCE_FORMATS[type(source)]).options(**options).load()

    def records(
        self, name: str, frame: DataFrame, source: TopicSource | LogSource
    ) -> tuple[DataFrame, DataFrame | None]:
        """Decoded rows, and those that cannot be; as tables of latest records have them, if the source is one."""
        if isinstance(source, TopicSource) and source.latest_per_key:
            frame = _latest_per_key(frame)
        if source.key_format == "string":
            frame = frame.withColumn("key", F.col("key").cast("string"))
        if source.format is None:
            return frame, None
        renamed = frame.select(*(F.col(name).alias(RECORD_PREFIX + name) for name in frame.columns))
        decoded = decode(renamed, "_value", format_spec(source.format))
        error = F.col(ERROR)
        letters = self.pipeline.dead_letters
        bad = None
        if letters is None:
            problem = F.concat(F.lit("a record cannot be decoded: "), _origin(), F.lit(": "), error)
            decoded = require(decoded, error.isNull(), problem, name)
        else:
            # Each batch reads a table beside a stream again, and would send its letters again.
            is_read_once = not source.as_table or not self.pipeline.is_streaming
            if letters.topic is not None and is_read_once:
                bad = letter_rows(decoded.where(error.isNotNull()), letters.topic, self.pipeline.name)
            decoded = keep(decoded, error.isNull())
        decoded = decoded.drop(ERROR, "_value", "_timestampType")
        if letters is None:
            self.ruled[name] = decoded
        return decoded, bad

    def _transformed(self, transform: Transform, views: Mapping[str, DataFrame], previous: str) -> DataFrame:
        if transform.sql is not None:
            return self.spark.sql(transform.sql)
        assert transform.function is not None
        function = load_function(transform.function, self.folder)
        made = function(*(views[name] for name in transform.inputs or (previous,)))
        if not isinstance(made, DataFrame):
            raise InvalidConfig(f"{transform.function} returned {type(made).__name__}, not a DataFrame")
        return made


def format_spec(declared: Format) -> FormatSpec:
    return FormatSpec(
        kind=declared.kind,
        schema=declared.schema or declared.column,
        registry=declared.registry,
        subject=declared.subject,
        schema_id=declared.schema_id,
        writer_schema=declared.writer_schema,
    )


def _latest_per_key(frame: DataFrame) -> DataFrame:
    """A topic as a table: the last record of each key of a partition, and none if it says that the key is gone."""
    newest_first = Window.partitionBy("topic", "partition", "key").orderBy(F.col("offset").desc())
    ranked = frame.withColumn("_rank", F.row_number().over(newest_first))
    return ranked.where("_rank = 1 AND value IS NOT NULL").drop("_rank")


def _origin() -> Column:
    return F.concat_ws(
        " ", F.lit("topic"), "_topic", F.lit("partition"), "_partition", F.lit("offset"), "_offset"
    )


def letter_rows(bad: DataFrame, topic: str, pipeline: str) -> DataFrame:
    """Rows for the dead-letter topic: the record as it was, its origin and the error behind its own headers."""
    texts: dict[str, Column] = {name: F.col(f"_{name}").cast("string") for name in LETTER_ORIGIN}
    texts["timestamp"] = F.unix_millis("_timestamp").cast("string")
    texts |= {"message": F.col(ERROR), "pipeline": F.lit(pipeline)}
    added = F.array(
        *(
            F.struct(F.lit(LETTER_HEADER_PREFIX + name).alias("key"), text.cast("binary").alias("value"))
            for name, text in texts.items()
        )
    )
    headers = (
        F.concat(F.coalesce(F.col("_headers"), F.array()), added) if "_headers" in bad.columns else added
    )
    return bad.select(
        F.col("_key").cast("binary").alias("key"),
        F.col("_value").cast("binary").alias("value"),
        F.lit(topic).alias("topic"),
        headers.alias("headers"),
    )


def output_rows(result: DataFrame, output: Output) -> DataFrame:
    """The rows in the form for a sink."""
    return sink_rows(result, output.sink, output.key) if isinstance(output.sink, TopicSink) else result


def sink_rows(result: DataFrame, sink: TopicSink, key: str) -> DataFrame:
    """The rows of a topic's sink: the value that the format makes of the columns, and what else a record has."""
    if sink.format is None:
        if "value" not in result.columns:
            raise InvalidConfig(
                f"{key}: the rows have no column value, but {', '.join(result.columns)}: name it in SQL, or give the"
                " sink a format that makes one"
            )
        return result.select(*(name for name in SINK_COLUMNS if name in result.columns))
    fields = [name for name in result.columns if not name.startswith(RECORD_PREFIX)]
    if not fields:
        raise InvalidConfig(
            f"{key}: a value is made of columns that do not begin with _, and there are {', '.join(result.columns)}"
        )
    kept = {"value"}
    for name, column in (("key", sink.key), ("timestamp", sink.timestamp)):
        if column is None:
            continue
        _require(result, column, f"{key}.{name}")
        if name in fields and column != name:
            raise InvalidConfig(f"{key}.{name}: the rows have a column {name} besides {column}: rename it")
        kept.add(name)
        if column != name:
            result = result.withColumn(name, F.col(f"`{column}`"))
    made = encode(result, format_spec(sink.format), columns=None if sink.format.schema else fields)
    made = made.select(*(name for name in made.columns if name in kept))
    if sink.key is not None and made.schema["key"].dataType.typeName() not in ("string", "binary"):
        made = made.withColumn("key", F.col("key").cast("string"))
    if sink.timestamp is not None and made.schema["timestamp"].dataType.typeName() != "timestamp":
        kind = made.schema["timestamp"].dataType.simpleString()
        raise InvalidConfig(
            f"{key}.timestamp: column {sink.timestamp} is {kind}, not timestamp: cast it in SQL"
        )
    return made


def with_letters(rows: DataFrame, letters: DataFrame, topic: str | None) -> DataFrame:
    """One DataFrame of both, for one sink: rows without a topic go to the sink's topic."""
    if "topic" not in rows.columns:
        rows = rows.withColumn("topic", F.lit(topic))
    for name in ("key", "value"):
        if name in rows.columns:
            rows = rows.withColumn(name, F.col(name).cast("binary"))
    return rows.unionByName(letters, allowMissingColumns=True)


def _require(frame: DataFrame, column: str, what: str) -> None:
    if column not in frame.columns:
        raise InvalidConfig(f"{what}: there is no column {column}; there are {', '.join(frame.columns)}")
