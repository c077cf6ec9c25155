"""The progress of a pipeline, from its checkpoint and its group. Nothing here needs Spark."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

from barnabas.spark.pipeline.checkpoint import DEAD_LETTERS, NotLocal, local_path, read_checkpoint
from barnabas.spark.pipeline.connect import require_connected
from barnabas.spark.pipeline.flows import flows_of, groups_of, letters_name
from barnabas.spark.pipeline.group import lags
from barnabas.spark.pipeline.model import Pipeline
from barnabas.spark.pipeline.tables import located


def status_of(pipeline: Pipeline, checkpoint: str | None = None) -> dict[str, Any]:
    """Rows for a person or a script."""
    location = located(checkpoint, Path()) if checkpoint else pipeline.checkpoint
    assert location is not None
    try:
        queries = [_query_row(flow.name, flow.checkpoint) for flow in flows_of(pipeline, location)]
        letters = f"{location}/{DEAD_LETTERS}"
        if local_path(letters).exists():
            queries.append(_query_row(letters_name(pipeline), letters))
    except NotLocal as error:
        queries = [{"query": pipeline.name, "query_id": None, "told": str(error)}]
    require_connected(pipeline)
    partitions = [
        {
            "group": group,
            "source": each.source,
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "committed_offset": each.committed_offset,
            "end_offset": each.end_offset,
            "lag": each.lag,
        }
        for group in groups_of(pipeline)
        for each in lags(pipeline, group)
    ]
    known: Counter[str] = Counter()
    for row in partitions:
        if row["lag"] is not None:
            known[str(row["group"])] += int(row["lag"])
    return {
        "name": pipeline.name,
        "groups": list(groups_of(pipeline)),
        "checkpoint": location,
        "queries": queries,
        # Of several sinks, the one that is the furthest behind counts.
        "lag": max(known.values(), default=None),
        "partitions": partitions,
    }


def _query_row(name: str, location: str) -> dict[str, Any]:
    found = read_checkpoint(location)
    if found is None:
        return {"query": name, "query_id": None, "told": "has not run yet"}
    return {"query": name, **dataclasses.asdict(found)}
