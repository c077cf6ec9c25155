"""A pipeline from its file: TOML, then tables, then what the tables say together."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from barnabas.errors import InvalidConfig
from barnabas.spark.pipeline.functions import is_findable
from barnabas.spark.pipeline.model import (
    AVAILABLE_NOW,
    DatabaseSink,
    DatabaseSource,
    DeltaSink,
    FileSink,
    FileSource,
    Format,
    LogSource,
    MirrorSink,
    Pipeline,
    Sink,
    TopicSink,
    TopicSource,
    Transform,
)
from barnabas.spark.pipeline.options import reader_options
from barnabas.spark.pipeline.tables import (
    FILE_BYTES_MAX,
    InvalidPipeline,
    Location,
    Settings,
    TableReader,
    duration_ms,
    nearest,
)
from barnabas.spark.topics.options import parse_options

BOOTSTRAP: Final = "bootstrap.servers"
BOOTSTRAP_VARIABLE: Final = "BARNABAS_BOOTSTRAP"
DEFAULT_BOOTSTRAP: Final = "localhost:9092"
CHECKPOINTS: Final = "checkpoints"
SINKS_MAX: Final = 30
_SPARK_PREFIX: Final = "spark."
_VIEW: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORMATS_WITH_SCHEMA: Final = ("json", "avro")

Faults = Iterator[tuple[str, str]]


def load_pipeline(path: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline that a file declares, with its defaults filled in; InvalidPipeline has all that is wrong with it."""
    path = Path(path)
    environment = os.environ if environment is None else environment
    reader = TableReader(path, environment)
    pipeline = reader.table(Pipeline, _parsed(path), "")
    reader.raise_faults()
    assert pipeline is not None
    pipeline = _with_defaults(pipeline, path, environment)
    pipeline = _with_schemas(pipeline, reader)
    for where, what in _faults(pipeline, path.parent):
        reader.fault(where, what)
    reader.raise_faults()
    return pipeline


def _parsed(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise InvalidPipeline(path, [f"the file has more than {FILE_BYTES_MAX} bytes"])
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidPipeline(path, [f"this is no TOML: {error}"]) from None
    except RecursionError:
        raise InvalidPipeline(path, ["this is no pipeline: it is nested too deeply"]) from None


def _with_defaults(pipeline: Pipeline, path: Path, environment: Mapping[str, str]) -> Pipeline:
    """Where the cluster is and where progress is kept; the settings of a source or sink stand over those of all."""
    bootstrap = environment.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP
    kafka = Settings({BOOTSTRAP: bootstrap, **pipeline.kafka})
    checkpoint = pipeline.checkpoint or f"{path.parent.absolute() / CHECKPOINTS}/{pipeline.name}"
    sources = {
        name: replace(
            source,
            kafka=Settings({**kafka, **source.kafka}),
            headers=source.headers or isinstance(pipeline.sink, MirrorSink),
        )
        if isinstance(source, TopicSource)
        else source
        for name, source in pipeline.sources.items()
    }

    def with_kafka(sink: Sink, _: str) -> Sink:
        if isinstance(sink, TopicSink):
            return replace(sink, kafka=Settings({**kafka, **sink.kafka}))
        return sink

    spark = {
        _SPARK_PREFIX + name.removeprefix(_SPARK_PREFIX): value for name, value in pipeline.spark.items()
    }
    return replace(
        _with_sinks(pipeline, with_kafka),
        kafka=kafka,
        spark=Settings(spark),
        checkpoint=Location(checkpoint),
        sources=sources,
    )


def _with_sinks(pipeline: Pipeline, change: Callable[[Sink, str], Sink]) -> Pipeline:
    """The pipeline with its sinks changed; `change` takes a sink and the key of its table."""
    changed = {key: change(sink, key) for key, sink in pipeline.sinks_by_key.items()}
    if pipeline.sink is not None:
        return replace(pipeline, sink=changed["sink"])
    return replace(pipeline, sinks={name: changed[f"sinks.{name}"] for name in pipeline.sinks})


def _with_schemas(pipeline: Pipeline, reader: TableReader) -> Pipeline:
    """Schemas that lie in files are read with the pipeline's own."""

    def read(declared: Format | None, where: str) -> Format | None:
        if declared is None or declared.schema_file is None:
            return declared
        try:
            text = Path(declared.schema_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reader.fault(f"{where}.format.schema_file", f"{declared.schema_file} cannot be read: {error}")
            return declared
        return replace(declared, schema=text) if declared.schema is None else declared

    sources = {
        name: replace(source, format=read(source.format, f"sources.{name}"))
        if isinstance(source, TopicSource | LogSource)
        else source
        for name, source in pipeline.sources.items()
    }

    def with_schema(sink: Sink, key: str) -> Sink:
        return replace(sink, format=read(sink.format, key)) if isinstance(sink, TopicSink) else sink

    return replace(_with_sinks(pipeline, with_schema), sources=sources)


def _faults(pipeline: Pipeline, folder: Path) -> Faults:
    """Combinations of keys that are not allowed although each key is valid."""
    yield from _name_faults(pipeline)
    for name, source in pipeline.sources.items():
        where = f"sources.{name}"
        if isinstance(source, TopicSource):
            yield from _topic_source_faults(source, where)
        if isinstance(source, TopicSource | LogSource):
            yield from _format_faults(source.format, f"{where}.format")
        if isinstance(source, FileSource) and source.schema is None and not source.as_table:
            yield (
                f"{where}.schema",
                "is missing: a stream of files needs to know its columns (as_table = true does not)",
            )
        if isinstance(source, DatabaseSource):
            yield from _database_source_faults(source, where)
    earlier = list(pipeline.sources)
    for index, transform in enumerate(pipeline.transforms):
        yield from _transform_faults(transform, f"transforms[{index}]", earlier, folder)
        earlier.append(transform.name)
    has_rows = pipeline.transforms or all(
        getattr(sink, "from_", None) for sink in pipeline.sinks_by_key.values()
    )
    if not has_rows and len(pipeline.sources) > 1:
        yield (
            "transforms",
            f"is missing: there are {len(pipeline.sources)} sources, and nothing makes one of them",
        )
    yield from _sinks_faults(pipeline, earlier)
    yield from _dead_letter_faults(pipeline)
    if pipeline.trigger != AVAILABLE_NOW and duration_ms(pipeline.trigger) is None:
        yield (
            "trigger",
            f'{pipeline.trigger!r} is not allowed; it takes "{AVAILABLE_NOW}" or a duration such as "500ms"',
        )


def _name_faults(pipeline: Pipeline) -> Faults:
    if not pipeline.sources:
        yield "sources", "is empty; it takes a table for each source, such as [sources.orders]"
    seen: set[str] = set()
    named = [(f"sources.{name}", name) for name in pipeline.sources]
    named += [(f"transforms[{index}].name", each.name) for index, each in enumerate(pipeline.transforms)]
    for where, name in named:
        if not _VIEW.fullmatch(name):
            yield where, f"{name!r} is not allowed; a name in SQL takes letters, digits and underscores"
        if name.lower() in seen:
            yield where, f"{name!r} is there already, and SQL could not tell the two apart"
        seen.add(name.lower())


def _topic_source_faults(source: TopicSource, where: str) -> Faults:
    if bool(source.topics) == bool(source.pattern):
        yield where, "say what to read with one of topics and pattern"
    if source.latest_per_key and not source.as_table:
        yield f"{where}.latest_per_key", "is for tables: as_table = true"
    if source.as_table:
        for name in ("starting", "max_records", "watermark"):
            if getattr(source, name) not in (None, "earliest"):
                yield f"{where}.{name}", "is for streams, and as_table = true makes this a table"
    if source.topics or source.pattern:
        try:
            parse_options(reader_options(source))
        except InvalidConfig as error:
            yield where, str(error)


def _database_source_faults(source: DatabaseSource, where: str) -> Faults:
    if bool(source.table) == bool(source.query):
        yield where, "say what to read with one of table and query"
    if not source.as_table and source.growing_column is None:
        yield (
            f"{where}.growing_column",
            "is missing: a stream follows a column that grows (as_table = true does not)",
        )


def _format_faults(declared: Format | None, where: str, *, is_read: bool = True) -> Faults:
    if declared is None:
        return
    has_schema = declared.kind in _FORMATS_WITH_SCHEMA
    if has_schema and declared.column is not None:
        yield f"{where}.column", f"{declared.kind} has its columns from the schema"
    if not has_schema:
        for name in ("schema", "registry", "subject", "schema_id"):
            if getattr(declared, name) is not None:
                yield (
                    f"{where}.{name}",
                    f"{declared.kind} has none; {' and '.join(_FORMATS_WITH_SCHEMA)} have",
                )
    if not is_read:
        return
    if declared.kind == "json" and declared.schema is None:
        yield f"{where}.schema", 'is missing; json takes the fields as DDL, such as "id BIGINT, name STRING"'
    if declared.kind == "avro" and declared.schema is None:
        if declared.registry is None:
            yield f"{where}.schema", "is missing; avro takes a schema, a schema_file or a registry"
        elif declared.subject is None and declared.schema_id is None:
            yield f"{where}.subject", "is missing; which of the registry's schemas gives the columns?"


def _transform_faults(transform: Transform, where: str, earlier: list[str], folder: Path) -> Faults:
    if (transform.sql is None) == (transform.function is None):
        yield where, "say what to do with one of sql and function"
    if transform.inputs and transform.function is None:
        yield f"{where}.inputs", "is for functions; SQL names what it reads"
    for index, name in enumerate(transform.inputs):
        if name not in earlier:
            yield (
                f"{where}.inputs[{index}]",
                f"{name!r} is no source and no earlier step{nearest(name, earlier)}; there are {', '.join(earlier)}",
            )
    if transform.function is not None and not is_findable(transform.function, folder):
        module = transform.function.partition(":")[0]
        yield f"{where}.function", f"there is no module {module} in {folder.absolute()} or where Python looks"


def _sinks_faults(pipeline: Pipeline, rows: list[str]) -> Faults:
    if (pipeline.sink is None) == (not pipeline.sinks):
        yield (
            "sink",
            "say where the rows go with one [sink], or with a table [sinks.NAME] for each of several",
        )
    if len(pipeline.sinks) > SINKS_MAX:
        yield "sinks", f"there are {len(pipeline.sinks)}; the limit is {SINKS_MAX}"
    folders: dict[str, str] = {}
    for name, sink in pipeline.sinks.items():
        if not _VIEW.fullmatch(name):
            yield f"sinks.{name}", f"{name!r} is not allowed; a name takes letters, digits and underscores"
        if isinstance(sink, MirrorSink):
            yield f"sinks.{name}", "a mirror is a pipeline of its own, with [sink]"
        if isinstance(sink, FileSink) and folders.setdefault(sink.path, name) != name:
            other = folders[sink.path]
            yield (
                f"sinks.{name}.path",
                f"sinks.{other} writes there: Spark's log of a folder is for one query",
            )
    for key, sink in pipeline.sinks_by_key.items():
        chosen = getattr(sink, "from_", None)
        if chosen is not None and chosen not in rows:
            yield (
                f"{key}.from",
                f"{chosen!r} is no source and no step{nearest(chosen, rows)}; there are {', '.join(rows)}",
            )
        yield from _sink_faults(pipeline, sink, key)
    has_topics = any(isinstance(each, TopicSink) for each in pipeline.sinks_by_key.values())
    if has_topics and not pipeline.is_streaming and pipeline.guarantee == "exactly-once":
        yield (
            "guarantee",
            'a pipeline of tables alone can only be "at-least-once": nothing tells a second run from the first',
        )


def _sink_faults(pipeline: Pipeline, sink: Sink, key: str) -> Faults:
    if isinstance(sink, TopicSink):
        yield from _format_faults(sink.format, f"{key}.format", is_read=False)
        read = {
            topic for each in pipeline.topic_sources.values() if not each.as_table for topic in each.topics
        }
        if sink.topic in read:
            yield f"{key}.topic", f"{sink.topic!r} is what the pipeline reads: it would never end"
        if sink.format is not None and sink.topic is None:
            yield f"{key}.topic", "is missing; it takes the name of a topic"
    elif isinstance(sink, DeltaSink | DatabaseSink) and (sink.mode == "upsert") != bool(sink.keys):
        yield f"{key}.keys", 'are what mode = "upsert" needs, and no other mode'
    elif isinstance(sink, MirrorSink):
        if BOOTSTRAP not in sink.kafka:
            yield f"{key}.kafka.{BOOTSTRAP}", "is missing; it takes the other cluster's brokers, as host:port"
        only = next(iter(pipeline.sources.values()), None)
        is_plain = isinstance(only, TopicSource) and only.format is None and not only.as_table
        if len(pipeline.sources) != 1 or not is_plain or pipeline.transforms:
            yield (
                key,
                "a mirror takes one source of topics as they are: no format, no transforms, no table",
            )


def _dead_letter_faults(pipeline: Pipeline) -> Faults:
    letters = pipeline.dead_letters
    if letters is None:
        return
    if (letters.topic is None) != letters.drop:
        yield "dead_letters", "say what to do with one of topic and drop = true"
    decoded = [
        source
        for source in pipeline.sources.values()
        if isinstance(source, TopicSource | LogSource) and source.format
    ]
    if not decoded:
        yield "dead_letters", "no source has a format, so that nothing is decoded and nothing can fail to be"
    for name, source in pipeline.topic_sources.items():
        if letters.topic is not None and letters.topic in source.topics:
            yield (
                "dead_letters.topic",
                f"{letters.topic!r} is what sources.{name} reads: letters would come back",
            )
