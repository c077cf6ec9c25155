"""A description of what a pipeline would do."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.spark.pipeline.checkpoint import NotLocal, read_checkpoint
from barnabas.spark.pipeline.group import PartitionLag, lags
from barnabas.spark.pipeline.model import (
    DatabaseSink,
    DatabaseSource,
    LogSource,
    Pipeline,
    Sink,
    Source,
    TopicSource,
)
from barnabas.spark.pipeline.run import PipelineRun
from barnabas.spark.pipeline.sinks import guarantee_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark's expressions can fill a page; --json has them whole.
LINE_LENGTH_MAX: Final = 200
_PASSWORD: Final = re.compile(r"://([^:/@]*):[^@/]*@")


def plan_of(spark: SparkSession, pipeline: Pipeline, folder: Path) -> dict[str, Any]:
    """Builds everything and starts nothing."""
    run = PipelineRun(spark, pipeline, folder)
    frames = run.frames()
    queries = run.planned(frames)
    assert pipeline.checkpoint is not None
    known = lags(pipeline)
    offsets = {
        name: _offsets(source, [each for each in known if each.source == name])
        for name, source in pipeline.topic_sources.items()
        if not source.as_table
    }
    return {
        "name": pipeline.name,
        "guarantee": guarantee_of(pipeline),
        "trigger": pipeline.trigger if pipeline.is_streaming else "once: no source is a stream",
        "checkpoint": pipeline.checkpoint,
        "progress": _progress(pipeline.checkpoint),
        "sources": [
            {
                "name": name,
                "reads": describe_source(source),
                "as": "table" if source.as_table else "stream",
                "offsets": offsets.get(name),
                "columns": columns_of(frames.views[name]),
            }
            for name, source in pipeline.sources.items()
        ],
        "transforms": [
            {
                "name": each.name,
                "does": each.function or " ".join((each.sql or "").split()),
                "columns": columns_of(frames.views[each.name]),
            }
            for each in pipeline.transforms
        ],
        "sink": {"writes": describe_sink(pipeline.sink), "columns": columns_of(frames.result)},
        "queries": [
            {
                "name": each.name,
                "checkpoint": each.checkpoint,
                "explain": _explained(each.frame),
            }
            for each in queries
        ],
    }


def _progress(checkpoint: str) -> str:
    try:
        found = read_checkpoint(checkpoint)
    except NotLocal:
        return "not on this machine, and not looked into"
    if found is None or found.committed_batch_id is None:
        return "nothing has been done yet"
    repeats = found.planned_batch_id != found.committed_batch_id
    return f"batch {found.committed_batch_id} is done" + (
        f", batch {found.planned_batch_id} will be repeated" if repeats else ""
    )


def _offsets(source: TopicSource, behind: list[PartitionLag]) -> list[dict[str, Any]]:
    """Where the next run begins in each partition, and where the partition ends now."""
    at_first = [each.end_offset if source.starting == "latest" else each.first_offset for each in behind]
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "from_offset": first if each.committed_offset is None else each.committed_offset,
            "end_offset": each.end_offset,
        }
        for each, first in zip(behind, at_first, strict=True)
    ]


def columns_of(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def describe_source(source: Source) -> str:
    if isinstance(source, TopicSource):
        what = ",".join(source.topics) if source.pattern is None else f"topics like {source.pattern}"
        decoded = f" as {source.format.kind}" if source.format else ""
        return f"topic {what}{decoded} at {source.kafka['bootstrap.servers']} from {source.starting}"
    if isinstance(source, DatabaseSource):
        return f"{source.table or source.query} of {without_password(source.url)}"
    if isinstance(source, LogSource):
        return f"log directories {', '.join(source.paths)}"
    return f"{source.file_format} in {source.path}"


def describe_sink(sink: Sink) -> str:
    if isinstance(sink, DatabaseSink):
        return f"{sink.mode} to {sink.table} of {without_password(sink.url)}"
    settings = asdict(sink)
    where = (
        settings.get("topic") or settings.get("path") or settings.get("kafka", {}).get("bootstrap.servers")
    )
    how = (
        settings.get("file_format")
        or settings.get("mode")
        or (settings.get("format") or {}).get("kind")
        or ""
    )
    return " ".join(
        part for part in (sink.TYPE, str(where or "by column topic"), f"({how})" if how else "") if part
    )


def without_password(url: str) -> str:
    return _PASSWORD.sub(r"://\1:…@", url)


def _explained(frame: DataFrame) -> str:
    """Spark's own plan."""
    with redirect_stdout(StringIO()) as told:
        frame.explain()
    return without_password(told.getvalue()).strip()


def plan_text(plan: dict[str, Any]) -> str:
    """The plan for a person."""
    lines = [
        f"pipeline {plan['name']}",
        f"  guarantee   {plan['guarantee']}",
        f"  trigger     {plan['trigger']}",
        f"  checkpoint  {plan['checkpoint']}: {plan['progress']}",
    ]
    for source in plan["sources"]:
        offsets = source["offsets"]
        to_read = sum(max(0, each["end_offset"] - each["from_offset"]) for each in offsets or ())
        found = "" if offsets is None else f", to read: {to_read:,} of {len(offsets)} partitions"
        lines += [f"{source['as']} {source['name']}", f"  reads       {source['reads']}{found}"]
        lines.append(f"  columns     {_columns_text(source['columns'])}")
    for step in plan["transforms"]:
        lines += [f"step {step['name']}", f"  does        {step['does']}"]
        lines.append(f"  columns     {_columns_text(step['columns'])}")
    lines += ["sink", f"  writes      {plan['sink']['writes']}"]
    lines.append(f"  columns     {_columns_text(plan['sink']['columns'])}")
    for query in plan["queries"]:
        lines.append(f"Spark's plan of {query['name']}")
        lines += [f"  {_cut(line)}" for line in query["explain"].splitlines()]
    return "\n".join(lines)


def _columns_text(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _cut(line: str) -> str:
    return line if len(line) <= LINE_LENGTH_MAX else f"{line[:LINE_LENGTH_MAX]}…"
