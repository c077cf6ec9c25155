"""What a pipeline file may say: a class a table, a field a key.

`docs/PIPELINES.md` has the same as tables for people, made from here.
"""

# ruff: noqa: RUF009 - `entry` is a field of a dataclass, which ruff cannot see.
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

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
    """What the bytes of a record are."""

    kind: Literal["json", "avro", "string", "bytes"] = entry("How a value is written.")
    schema: str | None = entry(
        "The fields: of JSON as Spark's DDL (`id BIGINT, name STRING`) or as JSON Schema, of Avro as its own JSON.",
        default=None,
    )
    schema_file: Location | None = entry("A file that has the schema.", default=None)
    column: str | None = entry(
        "Of strings and bytes: the column; `text` and `data` without it.", default=None
    )
    registry: Location | None = entry(
        "A Schema Registry, `http://host:port`, or a folder of `<id>.avsc`; values have its wire format then.",
        default=None,
    )
    subject: str | None = entry("The registry's subject, whose newest schema it is.", default=None)
    schema_id: int | None = entry("The registry's schema by its number.", default=None)
    writer_schema: str | None = entry(
        "Of Avro without a registry: the schema that values were written by, if it is another.", default=None
    )


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may be."""

    column: str = entry("A column of times.", check=_is_filled, takes="the name of a column")
    delay: DurationMs = entry("Rows older than the newest time by more than this may be left out.")


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Topics of a cluster. Undecoded rows have Spark's columns of Kafka: key, value, topic, partition, offset, …"""

    TYPE: ClassVar[str] = "topic"

    topics: tuple[str, ...] = entry("The topics to read.", default=())
    pattern: str | None = entry(
        "Instead of topics: all whose whole name matches this expression.", default=None
    )
    starting: Literal["earliest", "latest", "committed"] = entry(
        "Where the first run begins; `committed` is where the pipeline's group stands, else at the earliest.",
        default="earliest",
    )
    format: Format | None = entry("What values are; without it they stay bytes.", default=None)
    key_format: Literal["bytes", "string"] = entry("What keys are.", default="bytes")
    headers: bool = entry("Whether rows have their headers.", default=False)
    isolation: Literal["read_committed", "read_uncommitted"] = entry(
        "Whether records of transactions that are open or were aborted are left out.",
        default="read_committed",
    )
    fail_on_data_loss: bool = entry(
        "Whether to fail when records were deleted before they were read, instead of going on behind them.",
        default=True,
    )
    max_records: int | None = entry(
        "At most so many records a batch.", default=None, takes="a number above 0", check=_is_positive
    )
    min_partitions: int | None = entry(
        "Read in at least so many tasks.", default=None, takes="a number above 0", check=_is_positive
    )
    as_table: bool = entry("Read all of it for each batch as a table, to join a stream with.", default=False)
    latest_per_key: bool = entry(
        "Of a table: only the last record of each key; none if its value is null.", default=False
    )
    watermark: Watermark | None = entry("How late rows may be.", default=None)
    kafka: Settings = entry("Settings of its clients, over those of `[kafka]`.", default={})
    options: Settings = entry("Any other options of the format `barnabas`.", default={})


@dataclass(frozen=True, slots=True)
class LogSource:
    """Log directories of a broker, read without it; the same columns as those of topics."""

    TYPE: ClassVar[str] = "log"

    paths: tuple[Location, ...] = entry("The log directories.", check=bool, takes="paths")
    topics: tuple[str, ...] = entry("Only these topics.", default=())
    format: Format | None = entry("What values are; without it they stay bytes.", default=None)
    key_format: Literal["bytes", "string"] = entry("What keys are.", default="bytes")
    headers: bool = entry("Whether rows have their headers.", default=False)
    isolation: Literal["read_committed", "read_uncommitted"] = entry(
        "Whether records of aborted transactions are left out.", default="read_committed"
    )
    as_table: bool = entry("Read all of it for each batch as a table, to join a stream with.", default=False)
    watermark: Watermark | None = entry("How late rows may be.", default=None)
    options: Settings = entry("Any other options of the format `barnabas-log`.", default={})


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files of a folder; new ones are read as they come."""

    TYPE: ClassVar[str] = "files"

    path: Location = entry("The folder, or a pattern of folders.")
    file_format: FILE_FORMATS = entry("What the files are.")
    schema: str | None = entry(
        "The columns as Spark's DDL (`id BIGINT, name STRING`); a table may do without.", default=None
    )
    max_files: int | None = entry(
        "At most so many files a batch.", default=None, takes="a number above 0", check=_is_positive
    )
    as_table: bool = entry("Read all of it for each batch as a table, to join a stream with.", default=False)
    watermark: Watermark | None = entry("How late rows may be.", default=None)
    options: Settings = entry("Options of Spark's reader, such as `header` of CSV.", default={})


@dataclass(frozen=True, slots=True)
class DatabaseSource:
    """A table of PostgreSQL or SQLite; new rows are read as its growing column grows."""

    TYPE: ClassVar[str] = "database"

    url: str = entry("`postgresql://…` or `sqlite:///file`.", check=_is_filled, takes="a URL")
    table: str | None = entry("The table.", default=None)
    query: str | None = entry("Instead of a table: a query.", default=None)
    growing_column: str | None = entry("The column that grows; a table needs none.", default=None)
    max_rows: int | None = entry(
        "At most so many rows a batch.", default=None, takes="a number above 0", check=_is_positive
    )
    as_table: bool = entry("Read all of it for each batch as a table, to join a stream with.", default=False)
    watermark: Watermark | None = entry("How late rows may be.", default=None)
    options: Settings = entry("Any other options of the format `barnabas-database`.", default={})


Source: TypeAlias = TopicSource | LogSource | FileSource | DatabaseSource


@dataclass(frozen=True, slots=True)
class Transform:
    """A step: rows made of the rows of sources and earlier steps, by SQL or by a function."""

    name: str = entry("What later steps call its rows.", check=_is_filled, takes="a name")
    sql: str | None = entry("A query over the names of sources and earlier steps.", default=None)
    function: str | None = entry(
        "A function of DataFrames that returns one; its module may lie beside the file.",
        default=None,
        takes="module:function",
        check=_is_function,
    )
    inputs: tuple[str, ...] = entry(
        "What the function is given, in this order; else the step before it.", default=()
    )
    watermark: Watermark | None = entry("How late rows may be.", default=None)


@dataclass(frozen=True, slots=True)
class TopicSink:
    """A topic; exactly once by a transaction a batch.

    With a format, the columns whose names do not begin with `_` become the value. Without one the rows have the
    columns of a record themselves: value, and if they like key, topic, partition, headers, timestamp.
    """

    TYPE: ClassVar[str] = "topic"

    topic: str | None = entry("Where to; rows may have a column `topic` that says otherwise.", default=None)
    format: Format | None = entry("What values become.", default=None)
    key: str | None = entry("The column whose text is the record's key.", default=None)
    timestamp: str | None = entry("The column that is the record's timestamp.", default=None)
    transaction_timeout: DurationMs | None = entry(
        "How long a batch may take at most before the broker aborts it.", default=None
    )
    kafka: Settings = entry("Settings of its clients, over those of `[kafka]`.", default={})


@dataclass(frozen=True, slots=True)
class FileSink:
    """Files of a folder, by Spark's own sink: exactly once for readers that follow its log, as Spark does."""

    TYPE: ClassVar[str] = "files"

    path: Location = entry("The folder.")
    file_format: FILE_FORMATS = entry("What the files are.")
    partition_by: tuple[str, ...] = entry("Columns that become folders.", default=())
    options: Settings = entry("Options of Spark's writer, such as `compression`.", default={})


@dataclass(frozen=True, slots=True)
class DeltaSink:
    """A Delta table, by `deltalake`: the batch and its number are one commit there."""

    TYPE: ClassVar[str] = "delta"

    path: Location = entry("Where the table lies.")
    mode: Literal["append", "upsert"] = entry(
        "Whether rows replace those of the same keys.", default="append"
    )
    keys: tuple[str, ...] = entry("Columns by which rows are the same.", default=())
    partition_by: tuple[str, ...] = entry("Columns that become folders, when the table is made.", default=())
    storage_options: Settings = entry("For tables in object stores, as `deltalake` takes them.", default={})


@dataclass(frozen=True, slots=True)
class DatabaseSink:
    """A table of PostgreSQL or SQLite; the batch and its number are one transaction there."""

    TYPE: ClassVar[str] = "database"

    url: str = entry("`postgresql://…` or `sqlite:///file`.", check=_is_filled, takes="a URL")
    table: str = entry("The table.", check=_is_filled, takes="the name of a table")
    mode: Literal["append", "upsert"] = entry(
        "Whether rows replace those of the same keys.", default="append"
    )
    keys: tuple[str, ...] = entry("Columns by which rows are the same.", default=())


@dataclass(frozen=True, slots=True)
class MirrorSink:
    """Topics of another cluster: partitions, timestamps and headers are kept, offsets in a map."""

    TYPE: ClassVar[str] = "mirror"

    kafka: Settings = entry("Settings of the other cluster's clients, `bootstrap.servers` among them.")
    rename: str = entry(
        "The names over there.", default="{topic}", takes="a name with {topic} in it", check=_has_topic
    )
    groups: str | None = entry(
        "Groups whose whole name matches this expression get their offsets over there, too.", default=None
    )
    replication_factor: int | None = entry(
        "Of topics that are made over there; the brokers' default without it.",
        default=None,
        takes="a number above 0",
        check=_is_positive,
    )
    transaction_timeout: DurationMs | None = entry(
        "How long a batch may take at most before the broker aborts it.", default=None
    )


Sink: TypeAlias = TopicSink | FileSink | DeltaSink | DatabaseSink | MirrorSink


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """What becomes of records that cannot be decoded: without this table, the pipeline stops at the first."""

    topic: str | None = entry("They go here, with their origin and the error as headers.", default=None)
    drop: bool = entry("Instead of a topic: they are left out.", default=False)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline is one file. `${NAME}` in a text is the environment's NAME, `${NAME:-other}` other without it."""

    name: str = entry(
        "The name of the pipeline, of its consumer group and of its transactions.",
        check=_is_name,
        takes="letters, digits, dots, dashes and underscores",
    )
    sources: Mapping[str, Source] = entry("What is read, by the names that SQL knows it by.")
    sink: Sink = entry("Where the rows of the last step go.")
    transforms: tuple[Transform, ...] = entry("The steps, in their order.", default=())
    guarantee: Literal["exactly-once", "at-least-once"] = entry(
        "Whether a batch that is repeated after a failure shows in a topic.", default="exactly-once"
    )
    output_mode: Literal["append", "update", "complete"] = entry(
        "Of aggregations: rows once they are final, all that have changed, or all.", default="append"
    )
    trigger: str = entry(
        "How often a batch begins; `0s` is as soon as the last is done, `available-now` reads what there is and ends.",
        default="500ms",
        takes='"available-now" or a duration such as "500ms" or "10s"',
    )
    checkpoint: Location | None = entry(
        "Where Spark keeps its progress; `checkpoints/NAME` beside the file without it.", default=None
    )
    dead_letters: DeadLetters | None = entry("Records that cannot be decoded.", default=None)
    kafka: Settings = entry(
        "Settings of clients; `bootstrap.servers` is BARNABAS_BOOTSTRAP or localhost:9092 without it.",
        default={},
    )
    spark: Settings = entry(
        "Settings of the Spark session, with or without the `spark.` that their names begin with.", default={}
    )

    @property
    def topic_sources(self) -> dict[str, TopicSource]:
        return {name: source for name, source in self.sources.items() if isinstance(source, TopicSource)}

    @property
    def letters_kafka(self) -> Settings:
        """Where dead letters go beside a sink that is no topic: to the cluster that they came from, if they did."""
        if isinstance(self.sink, TopicSink):
            return self.sink.kafka
        return next((source.kafka for source in self.topic_sources.values()), self.kafka)

    @property
    def is_streaming(self) -> bool:
        return not all(source.as_table for source in self.sources.values())
