"""The progress of a pipeline, from its checkpoint and its group. Nothing here needs Spark."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from barnabas.spark.pipeline.checkpoint import DEAD_LETTERS, NotLocal, local_path, read_checkpoint
from barnabas.spark.pipeline.connect import require_connected
from barnabas.spark.pipeline.group import lags
from barnabas.spark.pipeline.model import Pipeline
from barnabas.spark.pipeline.tables import located


def status_of(pipeline: Pipeline, checkpoint: str | None = None) -> dict[str, Any]:
    """Rows for a person or a script."""
    location = located(checkpoint, Path()) if checkpoint else pipeline.checkpoint
    assert location is not None
    try:
        queries = [_query_row(pipeline.name, location)]
        letters = f"{location}/{DEAD_LETTERS}"
        if local_path(letters).exists():
            queries.append(_query_row(f"{pipeline.name}.{DEAD_LETTERS}", letters))
    except NotLocal as error:
        queries = [{"query": pipeline.name, "query_id": None, "told": str(error)}]
    require_connected(pipeline)
    partitions = [
        {
            "source": each.source,
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "committed_offset": each.committed_offset,
            "end_offset": each.end_offset,
            "lag": each.lag,
        }
        for each in lags(pipeline)
    ]
    known = [row["lag"] for row in partitions if row["lag"] is not None]
    return {
        "name": pipeline.name,
        "group": pipeline.name,
        "checkpoint": location,
        "queries": queries,
        "lag": sum(known) if known else None,
        "partitions": partitions,
    }


def _query_row(name: str, location: str) -> dict[str, Any]:
    found = read_checkpoint(location)
    if found is None:
        return {"query": name, "query_id": None, "told": "has not run yet"}
    return {"query": name, **dataclasses.asdict(found)}
