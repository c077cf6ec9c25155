"""A description of what a pipeline would do."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.model import TopicPartition
from barnabas.spark.pipeline.checkpoint import NotLocal, read_checkpoint
from barnabas.spark.pipeline.describe import describe_sink, describe_source, without_password
from barnabas.spark.pipeline.flows import groups_of
from barnabas.spark.pipeline.group import PartitionLag, lags
from barnabas.spark.pipeline.model import Pipeline, TopicSource
from barnabas.spark.pipeline.run import PipelineRun
from barnabas.spark.pipeline.sinks import guarantee_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark's expressions can fill a page; --json has them whole.
LINE_LENGTH_MAX: Final = 200


def plan_of(spark: SparkSession, pipeline: Pipeline, folder: Path) -> dict[str, Any]:
    """Builds everything and starts nothing."""
    run = PipelineRun(spark, pipeline, folder)
    frames = run.frames()
    queries = run.planned(frames)
    assert pipeline.checkpoint is not None
    known = _furthest_behind(pipeline)
    offsets = {
        name: _offsets(source, [each for each in known if each.source == name])
        for name, source in pipeline.topic_sources.items()
        if not source.as_table
    }
    return {
        "name": pipeline.name,
        "trigger": pipeline.trigger if pipeline.is_streaming else "once: no source is a stream",
        "checkpoint": pipeline.checkpoint,
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
        "sinks": [
            {
                "key": output.key,
                "from": output.rows,
                "writes": describe_sink(output.sink),
                "guarantee": guarantee_of(pipeline, output.sink),
                "columns": columns_of(frame),
            }
            for output, frame in frames.outputs
        ],
        "queries": [
            {
                "name": each.name,
                "checkpoint": each.checkpoint,
                "progress": _progress(each.checkpoint),
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


def _furthest_behind(pipeline: Pipeline) -> list[PartitionLag]:
    """The partitions, as the sink sees them that is the furthest behind."""
    found: dict[tuple[str, TopicPartition], PartitionLag] = {}
    for group in groups_of(pipeline):
        for each in lags(pipeline, group):
            place = each.source, each.partition
            if place not in found or (each.committed_offset or 0) < (found[place].committed_offset or 0):
                found[place] = each
    return list(found.values())


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


def _explained(frame: DataFrame) -> str:
    """Spark's own plan."""
    with redirect_stdout(StringIO()) as told:
        # Of a query as SQL gives it, Spark looks at the names, and does not see that they are streams.
        frame.select("*").explain()
    return without_password(told.getvalue()).strip()


def plan_text(plan: dict[str, Any]) -> str:
    """The plan for a person."""
    lines = [
        f"pipeline {plan['name']}",
        f"  trigger     {plan['trigger']}",
        f"  checkpoint  {plan['checkpoint']}",
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
    for sink in plan["sinks"]:
        lines += [sink["key"], f"  writes      {sink['writes']}", f"  guarantee   {sink['guarantee']}"]
        lines += [f"  from        {sink['from']}", f"  columns     {_columns_text(sink['columns'])}"]
    for query in plan["queries"]:
        lines.append(f"query {query['name']}: {query['progress']}")
        lines += [f"  {_cut(line)}" for line in query["explain"].splitlines()]
    return "\n".join(lines)


def _columns_text(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _cut(line: str) -> str:
    return line if len(line) <= LINE_LENGTH_MAX else f"{line[:LINE_LENGTH_MAX]}…"
