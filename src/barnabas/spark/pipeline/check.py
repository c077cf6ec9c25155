"""Checks a pipeline's schemas and SQL with Spark's own parser and analyzer. It reads no data and runs nothing.

Empty DataFrames with the same columns replace the sources. If the columns are unknown without a request (a database,
files without a schema, a registry) or without running the user's code, the findings list what was not checked.

    python -m barnabas.spark.pipeline.check FILE [--ask-registries]

prints the findings as JSON. Validation runs this in a separate process, because it starts Java.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.errors import InvalidConfig
from barnabas.spark.failures import told
from barnabas.spark.pipeline.flows import Output, outputs_of
from barnabas.spark.pipeline.model import (
    DatabaseSink,
    DatabaseSource,
    DeltaSink,
    FileSink,
    FileSource,
    Format,
    LogSource,
    MirrorSink,
    Pipeline,
    Source,
    TopicSink,
    TopicSource,
    Transform,
)
from barnabas.spark.session import kept_quiet, require_spark, start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SESSION: Final[Mapping[str, str]] = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "1"}
MASTER: Final = "local[1]"
TIMEOUT_S: Final = 300
WHAT_SPARK_CHECKS: Final = "types of schemas, SQL and columns"
ASK_REGISTRIES: Final = "--ask-registries"
UNKNOWN_FUNCTION: Final = "UNRESOLVED_ROUTINE"
# The start of our errors about a key of the current table.
_KEY: Final = re.compile(r"(schema|schema_id|subject|registry): ")
NOT_MADE: Final = "the columns are not known"
OUTPUT_MODES: Final = {"append": "Append", "update": "Update", "complete": "Complete"}


@dataclass(slots=True)
class Findings:
    """Faults are `key: error`; skipped checks are `key: reason`."""

    faults: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)


def check(spark: SparkSession, pipeline: Pipeline, folder: Path, *, asks_registries: bool) -> Findings:
    return _Checker(spark, pipeline, folder, asks_registries).run()


class _Checker:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, folder: Path, asks_registries: bool) -> None:
        from barnabas.spark.pipeline.frames import FrameBuilder

        self._pipeline = pipeline
        self._asks_registries = asks_registries
        self._builder = FrameBuilder(spark, pipeline, folder)
        self._builder.open_session()
        self._findings = Findings()
        self._views: dict[str, DataFrame] = {}
        # Sources and steps without known columns, and why.
        self._unknown: dict[str, str] = {}

    def run(self) -> Findings:
        for name, source in self._pipeline.sources.items():
            self._source(name, source)
        for index, transform in enumerate(self._pipeline.transforms):
            self._transform(f"transforms[{index}]", transform)
        for output in outputs_of(self._pipeline):
            if output.rows in self._views:
                self._sink(output, self._views[output.rows])
            else:
                self._skip(output.key, f"the columns of {output.rows} are not known")
        return self._findings

    def _skip(self, where: str, reason: str) -> None:
        self._findings.not_checked.append(f"{where}: {reason}")

    @contextmanager
    def _faults_of(self, where: str) -> Iterator[None]:
        """Notes the errors raised in the block. Our errors may begin with the key that they concern."""
        try:
            yield
        except Exception as error:
            message = str(told(error))
            condition = getattr(error, "getCondition", lambda: None)()
            if condition == UNKNOWN_FUNCTION and any(each.function for each in self._pipeline.transforms):
                # A function of the pipeline's may register it.
                self._skip(where, message)
            elif message.startswith("sink"):
                self._findings.faults.append(message)
            else:
                dot = "." if _KEY.match(message) else ": "
                self._findings.faults.append(f"{where}{dot}{message}")

    def _known(self, name: str, where: str, make: Callable[[], DataFrame]) -> None:
        """A view of the result of `make`; a failure is a fault, and the view is unknown to all that use it."""
        self._unknown[name] = NOT_MADE
        with self._faults_of(where):
            self._views[name] = make()
            del self._unknown[name]

    def _source(self, name: str, source: Source) -> None:
        where = f"sources.{name}"
        reason = self._why_unknown(source)
        if reason is not None:
            self._leave(name, where, reason)
            return

        def make() -> DataFrame:
            frame = self._empty(self._schema(source), is_streaming=not source.as_table)
            if isinstance(source, TopicSource | LogSource):
                frame, _ = self._builder.records(name, frame, source)
            return frame

        has_format = isinstance(source, TopicSource | LogSource) and source.format is not None
        self._known(name, f"{where}.format" if has_format else where, make)
        if name in self._views:
            made = self._views.pop(name)
            self._known(name, f"{where}.watermark", lambda: self._builder.view(name, made, source.watermark))

    def _why_unknown(self, source: Source) -> str | None:
        """Why the columns of a source are not known here, if they are not."""
        if isinstance(source, DatabaseSource):
            return "its columns are the database's, which is not asked"
        if isinstance(source, FileSource):
            return (
                None if source.schema else "without a schema its columns are the files', which are not read"
            )
        if source.format is not None and source.format.kind == "avro" and self._is_remote(source.format):
            return "its columns are the registry's, which is not asked (--connect asks it)"
        return None

    def _leave(self, name: str, where: str, reason: str) -> None:
        self._unknown[name] = reason
        self._skip(where, reason)

    def _is_remote(self, declared: Format) -> bool:
        """Whether a registry is to be asked for it, which is done only if the user wants it."""
        return _is_http(declared.registry) and not self._asks_registries and declared.schema is None

    def _would_enroll(self, declared: Format) -> bool:
        return declared.kind == "avro" and declared.schema_id is None and _is_http(declared.registry)

    def _schema(self, source: Source) -> StructType:
        from barnabas.spark.formats.json import parse_ddl
        from barnabas.spark.pipeline.options import SOURCE_FORMATS, reader_options
        from barnabas.spark.registry import data_source

        if isinstance(source, FileSource):
            assert source.schema is not None
            return parse_ddl(source.schema)
        columns = data_source(SOURCE_FORMATS[type(source)])(reader_options(source)).schema()
        assert not isinstance(columns, str)
        return columns

    def _empty(self, columns: StructType, *, is_streaming: bool) -> DataFrame:
        """A frame with these columns: of no rows, or a stream that is never started."""
        from pyspark.sql import functions as F  # noqa: N812

        spark = self._builder.spark
        if not is_streaming:
            return spark.createDataFrame([], columns)
        nothing = (F.lit(None).cast(each.dataType).alias(each.name) for each in columns.fields)
        return spark.readStream.format("rate").load().select(*nothing)

    def _transform(self, where: str, transform: Transform) -> None:
        name = transform.name
        if transform.function is not None:
            self._leave(name, f"{where}.function", f"{transform.function} is not run")
            return
        assert transform.sql is not None
        sql = transform.sql
        # Parsed as a query first: Spark runs commands as soon as it is given them.
        parser: Any = self._builder.spark._jsparkSession.sessionState().sqlParser()
        self._unknown[name] = NOT_MADE
        with self._faults_of(f"{where}.sql"):
            parser.parseQuery(sql)
            del self._unknown[name]
        if name in self._unknown:
            return
        for other, reason in self._unknown.items():
            if re.search(rf"\b{re.escape(other)}\b", sql, re.IGNORECASE):
                self._leave(name, f"{where}.sql", f"columns and functions: of {other}, {reason}")
                return
        self._known(name, f"{where}.sql", lambda: self._builder.spark.sql(sql))
        if name in self._views:
            made = self._views.pop(name)
            self._known(
                name, f"{where}.watermark", lambda: self._builder.view(name, made, transform.watermark)
            )

    def _sink(self, output: Output, result: DataFrame) -> None:
        from barnabas.spark.pipeline.frames import sink_rows

        sink, key = output.sink, output.key
        columns = {name.lower() for name in result.columns}
        if isinstance(sink, TopicSink):
            if sink.format is not None and self._would_enroll(sink.format):
                self._skip(f"{key}.format", "the registry is not asked, as it would take the schema")
            elif sink.format is not None and self._is_remote(sink.format):
                self._skip(f"{key}.format", "the registry is not asked (--connect asks it)")
            else:
                with self._faults_of(f"{key}.format"):
                    sink_rows(result, sink, key)
        named: dict[str, tuple[str, ...]] = {}
        if isinstance(sink, DeltaSink | DatabaseSink):
            named["keys"] = sink.keys
            self._skip(key, "whether the table takes these rows")
        if isinstance(sink, DeltaSink | FileSink):
            named["partition_by"] = sink.partition_by
        for table_key, names in named.items():
            for name in names:
                if name.lower() not in columns:
                    self._findings.faults.append(
                        f"{key}.{table_key}: there is no column {name}; there are {', '.join(result.columns)}"
                    )
        if result.isStreaming:
            with self._faults_of("output_mode"):
                self._require_output_mode(result)

    def _require_output_mode(self, result: DataFrame) -> None:
        jvm: Any = self._builder.spark.sparkContext._jvm
        from barnabas.spark.pipeline.rules import has_state

        chosen = self._pipeline.output_mode if self._pipeline.sink or has_state(result) else "append"
        mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, OUTPUT_MODES[chosen])()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(result._jdf.queryExecution().analyzed(), mode)


def _is_http(registry: str | None) -> bool:
    return registry is not None and registry.startswith(("http://", "https://"))


def check_apart(path: Path, pipeline: Pipeline, *, asks_registries: bool) -> Findings:
    """The findings of a separate process. If Spark cannot run, they state this and the reason."""
    if isinstance(pipeline.sink, MirrorSink):
        # It has no schemas and no SQL.
        return Findings()
    try:
        require_spark()
    except InvalidConfig as error:
        return Findings(not_checked=[f"{WHAT_SPARK_CHECKS}: {error}"])
    command = [sys.executable, "-m", __name__, str(path), *([ASK_REGISTRIES] if asks_registries else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Findings(not_checked=[f"{WHAT_SPARK_CHECKS}: Spark did not answer within {TIMEOUT_S} s"])
    if done.returncode != 0:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return Findings(not_checked=[f"{WHAT_SPARK_CHECKS}: Spark did not start: {last}"])
    return Findings(**json.loads(done.stdout.splitlines()[-1]))


def main(arguments: list[str]) -> None:
    from barnabas.spark.pipeline.load import load_pipeline

    path = Path(arguments[0])
    pipeline = load_pipeline(path)
    settings = {name: value for name, value in pipeline.spark.items() if name != "spark.master"}
    with open(os.devnull, "ab") as nowhere, kept_quiet(nowhere):
        spark = start_session(pipeline.name, master=MASTER, settings={**SESSION, **settings})
    spark.sparkContext.setLogLevel("OFF")
    try:
        found = check(spark, pipeline, path.parent, asks_registries=ASK_REGISTRIES in arguments)
    finally:
        spark.stop()
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:
        sys.exit(str(told(error)))
