"""The contents of a pipeline file: one class per table, one field per key.

`docs/PIPELINES.md` has the same as tables for people, made from here.
"""

# ruff: noqa: RUF009 - `entry` is a field of a dataclass, which ruff cannot see.
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

from barnabas.spark.pipeline.tables import DurationMs, Location, Settings, entry

# A pipeline's name is the name of its group and the beginning of its transactional id.
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
AVAILABLE_NOW: Final = "available-now"
FILE_FORMATS: TypeAlias = Literal["json", "csv", "parquet"]


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _is_function(text: str) -> bool:
    return _FUNCTION.fullmatch(text) is not None


def _is_filled(text: str) -> bool:
    return bool(text.strip())


def _is_positive(number: int) -> bool:
    return 0 < number < 2**31


def _has_topic(text: str) -> bool:
    return text.count("{topic}") == 1


@dataclass(frozen=True, slots=True)
class Format:
    """The format of the bytes of a record."""

    kind: Literal["json", "avro", "string", "bytes"] = entry("The encoding of a value.")
    schema: str | None = entry(
        "The fields: for JSON as Spark's DDL (`id BIGINT, name STRING`) or JSON Schema, for Avro as an Avro schema.",
        default=None,
    )
    schema_file: Location | None = entry("A file with the schema.", default=None)
    column: str | None = entry(
        "For strings and bytes: the column; the defaults are `text` and `data`.", default=None
    )
    registry: Location | None = entry(
        "A Schema Registry, `http://host:port`, or a folder of `<id>.avsc`; values then have its wire format.",
        default=None,
    )
    subject: str | None = entry("The subject in the registry; its newest schema applies.", default=None)
    schema_id: int | None = entry("The id of the schema in the registry.", default=None)
    writer_schema: str | None = entry(
        "For Avro without a registry: the writer's schema, if it differs.", default=None
    )


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may be."""

    column: str = entry("A timestamp column.", check=_is_filled, takes="the name of a column")
    delay: DurationMs = entry("Spark may omit rows that are older than the newest time by more than this.")


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Topics of a cluster. Without a format, rows have the columns of Spark's kafka format."""

    TYPE: ClassVar[str] = "topic"

    topics: tuple[str, ...] = entry("The topics to read.", default=())
    pattern: str | None = entry(
        "Instead of topics: all topics whose whole name matches this expression.", default=None
    )
    starting: Literal["earliest", "latest", "committed"] = entry(
        "Where the first run starts; `committed` means the committed offsets of the pipeline's group, or the earliest.",
        default="earliest",
    )
    format: Format | None = entry("The format of values; without it they stay bytes.", default=None)
    key_format: Literal["bytes", "string"] = entry("The format of keys.", default="bytes")
    headers: bool = entry("Whether rows have a column with the headers.", default=False)
    isolation: Literal["read_committed", "read_uncommitted"] = entry(
        "Whether to omit records of open and aborted transactions.",
        default="read_committed",
    )
    fail_on_data_loss: bool = entry(
        "Whether to fail if records were deleted before they were read; otherwise the pipeline skips them.",
        default=True,
    )
    max_records: int | None = entry(
        "The maximum number of records per batch.", default=None, takes="a number above 0", check=_is_positive
    )
    min_partitions: int | None = entry(
        "The minimum number of tasks that read.", default=None, takes="a number above 0", check=_is_positive
    )
    as_table: bool = entry(
        "Whether each batch reads the whole source as a table, for a join with a stream.", default=False
    )
    latest_per_key: bool = entry(
        "For a table: only the last record of each key, and none if its value is null.", default=False
    )
    watermark: Watermark | None = entry("How late rows may be.", default=None)
    kafka: Settings = entry("Client settings; they override those of `[kafka]`.", default={})
    options: Settings = entry("Any other options of the format `barnabas`.", default={})


@dataclass(frozen=True, slots=True)
class LogSource:
    """Log directories of a broker, read without the broker. The columns are the same as for topics."""

    TYPE: ClassVar[str] = "log"

    paths: tuple[Location, ...] = entry("The log directories.", check=bool, takes="paths")
    topics: tuple[str, ...] = entry("Only these topics.", default=())
    format: Format | None = entry("The format of values; without it they stay bytes.", default=None)
    key_format: Literal["bytes", "string"] = entry("The format of keys.", default="bytes")
    headers: bool = entry("Whether rows have a column with the headers.", default=False)
    isolation: Literal["read_committed", "read_uncommitted"] = entry(
        "Whether to omit records of aborted transactions.", default="read_committed"
    )
    as_table: bool = entry(
        "Whether each batch reads the whole source as a table, for a join with a stream.", default=False
    )
    watermark: Watermark | None = entry("How late rows may be.", default=None)
    options: Settings = entry("Any other options of the format `barnabas-log`.", default={})


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files of a folder. The source reads new files as they arrive."""

    TYPE: ClassVar[str] = "files"

    path: Location = entry("The folder, or a pattern that matches folders.")
    file_format: FILE_FORMATS = entry("The format of the files.")
    schema: str | None = entry(
        "The columns as Spark's DDL (`id BIGINT, name STRING`); optional for a table.", default=None
    )
    max_files: int | None = entry(
        "The maximum number of files per batch.", default=None, takes="a number above 0", check=_is_positive
    )
    as_table: bool = entry(
        "Whether each batch reads the whole source as a table, for a join with a stream.", default=False
    )
    watermark: Watermark | None = entry("How late rows may be.", default=None)
    options: Settings = entry("Options of Spark's reader, such as `header` of CSV.", default={})


@dataclass(frozen=True, slots=True)
class DatabaseSource:
    """A table of PostgreSQL or SQLite. The source reads new rows by a column that grows."""

    TYPE: ClassVar[str] = "database"

    url: str = entry("`postgresql://…` or `sqlite:///file`.", check=_is_filled, takes="a URL")
    table: str | None = entry("The table.", default=None)
    query: str | None = entry("Instead of a table: a query.", default=None)
    growing_column: str | None = entry("The column that grows; not needed with `as_table`.", default=None)
    max_rows: int | None = entry(
        "The maximum number of rows per batch.", default=None, takes="a number above 0", check=_is_positive
    )
    as_table: bool = entry(
        "Whether each batch reads the whole source as a table, for a join with a stream.", default=False
    )
    watermark: Watermark | None = entry("How late rows may be.", default=None)
    options: Settings = entry("Any other options of the format `barnabas-database`.", default={})


Source: TypeAlias = TopicSource | LogSource | FileSource | DatabaseSource


@dataclass(frozen=True, slots=True)
class Transform:
    """A step that computes rows from sources and earlier steps, by SQL or by a function."""

    name: str = entry("The name of its rows for later steps.", check=_is_filled, takes="a name")
    sql: str | None = entry("A query over the names of sources and earlier steps.", default=None)
    function: str | None = entry(
        "A function that takes DataFrames and returns one; its module may be beside the file.",
        default=None,
        takes="module:function",
        check=_is_function,
    )
    inputs: tuple[str, ...] = entry(
        "The arguments of the function, in this order; by default the previous step.", default=()
    )
    watermark: Watermark | None = entry("How late rows may be.", default=None)


def _from() -> Any:
    return entry("The source or step whose rows go to this sink; the default is the last step.", default=None)


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic, written exactly once with one transaction per batch.

    With a format, the columns whose names do not begin with `_` become the value. Without a format the rows
    have the columns of a record: value, and optionally key, topic, partition, headers, timestamp.
    """

    TYPE: ClassVar[str] = "topic"

    from_: str | None = _from()
    topic: str | None = entry("The target topic; a column `topic` of a row overrides it.", default=None)
    format: Format | None = entry("The format of values.", default=None)
    key: str | None = entry("The column with the record's key as text.", default=None)
    timestamp: str | None = entry("The column with the record's timestamp.", default=None)
    transaction_timeout: DurationMs | None = entry(
        "The maximum time of a batch before the broker aborts its transaction.", default=None
    )
    kafka: Settings = entry("Client settings; they override those of `[kafka]`.", default={})


@dataclass(frozen=True, slots=True)
class FileSink:
    """Files of a folder, written by Spark's own sink: exactly once for readers that follow its log, as Spark does."""

    TYPE: ClassVar[str] = "files"

    from_: str | None = _from()
    path: Location = entry("The folder.")
    file_format: FILE_FORMATS = entry("The format of the files.")
    partition_by: tuple[str, ...] = entry("Columns whose values become folders.", default=())
    options: Settings = entry("Options of Spark's writer, such as `compression`.", default={})


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """A Delta table, written by `deltalake`. One commit contains the batch and its number."""

    TYPE: ClassVar[str] = "delta"

    from_: str | None = _from()
    path: Location = entry("The location of the table.")
    mode: Literal["append", "upsert"] = entry(
        "Whether rows replace rows with the same keys.", default="append"
    )
    keys: tuple[str, ...] = entry("The columns that identify a row.", default=())
    partition_by: tuple[str, ...] = entry(
        "Columns whose values become folders; applies when the table is created.", default=()
    )
    storage_options: Settings = entry("Options of `deltalake` for tables in object stores.", default={})


@dataclass(frozen=True, slots=True)
class DatabaseSink:
    """A table of PostgreSQL or SQLite. One transaction contains the batch and its number."""

    TYPE: ClassVar[str] = "database"

    from_: str | None = _from()
    url: str = entry("`postgresql://…` or `sqlite:///file`.", check=_is_filled, takes="a URL")
    table: str = entry("The table.", check=_is_filled, takes="the name of a table")
    mode: Literal["append", "upsert"] = entry(
        "Whether rows replace rows with the same keys.", default="append"
    )
    keys: tuple[str, ...] = entry("The columns that identify a row.", default=())


@dataclass(frozen=True, slots=True)
class MirrorSink:
    """Topics of another cluster. The mirror preserves partitions, timestamps and headers, and maps offsets."""

    TYPE: ClassVar[str] = "mirror"

    kafka: Settings = entry("Client settings for the other cluster, including `bootstrap.servers`.")
    rename: str = entry(
        "The names of the topics on the target.",
        default="{topic}",
        takes="a name with {topic} in it",
        check=_has_topic,
    )
    groups: str | None = entry(
        "The mirror translates the offsets of groups whose whole name matches this expression.", default=None
    )
    replication_factor: int | None = entry(
        "The replication factor of created topics; by default that of the target brokers.",
        default=None,
        takes="a number above 0",
        check=_is_positive,
    )
    transaction_timeout: DurationMs | None = entry(
        "The maximum time of a batch before the broker aborts its transaction.", default=None
    )


Sink: TypeAlias = TopicSink | FileSink | DeltaSink | DatabaseSink | MirrorSink


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The treatment of records that cannot be decoded. Without this table, the pipeline stops at the first one."""

    topic: str | None = entry(
        "The topic for these records; headers contain their origin and the error.", default=None
    )
    drop: bool = entry("Instead of a topic: skip these records.", default=False)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One file is one pipeline. `${NAME}` is the environment variable NAME; `${NAME:-x}` has the default `x`."""

    name: str = entry(
        "The name of the pipeline, of its consumer group and of its transactions.",
        check=_is_name,
        takes="letters, digits, dots, dashes and underscores",
    )
    sources: Mapping[str, Source] = entry("The sources, by their names in SQL.")
    sink: Sink | None = entry("The target for the rows of the last step.", default=None)
    sinks: Mapping[str, Sink] = entry(
        "Instead of `sink`: several sinks by their names, with the same keys.", default={}
    )
    transforms: tuple[Transform, ...] = entry("The steps, in order.", default=())
    guarantee: Literal["exactly-once", "at-least-once"] = entry(
        "Whether a topic shows a batch that is repeated after a failure.", default="exactly-once"
    )
    output_mode: Literal["append", "update", "complete"] = entry(
        "For aggregations: final rows only, all changed rows, or all rows.", default="append"
    )
    trigger: str = entry(
        "The interval of batches; `0s` means no pause; `available-now` reads the existing data and exits.",
        default="500ms",
        takes='"available-now" or a duration such as "500ms" or "10s"',
    )
    checkpoint: Location | None = entry(
        "The location of Spark's progress; the default is `checkpoints/NAME` beside the file.", default=None
    )
    dead_letters: DeadLetters | None = entry("Records that cannot be decoded.", default=None)
    kafka: Settings = entry(
        "Client settings; the default of `bootstrap.servers` is BARNABAS_BOOTSTRAP or localhost:9092.",
        default={},
    )
    spark: Settings = entry("Settings of the Spark session; the prefix `spark.` is optional.", default={})

    @property
    def topic_sources(self) -> dict[str, TopicSource]:
        return {name: source for name, source in self.sources.items() if isinstance(source, TopicSource)}

    @property
    def sinks_by_key(self) -> dict[str, Sink]:
        """The sink or the sinks, by the keys of their tables: `sink`, or `sinks.NAME`."""
        if self.sink is not None:
            return {"sink": self.sink}
        return {f"sinks.{name}": sink for name, sink in self.sinks.items()}

    @property
    def letters_kafka(self) -> Settings:
        """The cluster for dead letters: that of the one sink if it is a topic, otherwise that of the first source."""
        if isinstance(self.sink, TopicSink):
            return self.sink.kafka
        return next((source.kafka for source in self.topic_sources.values()), self.kafka)

    @property
    def is_streaming(self) -> bool:
        return not all(source.as_table for source in self.sources.values())
