"""The state of pipelines, from their files, checkpoints and groups, for a program that shows it. Needs no Spark."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.errors import KafkaError
from barnabas.spark.pipeline.describe import graph_of
from barnabas.spark.pipeline.flows import groups_of, letters_name
from barnabas.spark.pipeline.journal import BEAT_S, read_journal
from barnabas.spark.pipeline.listing import pipeline_files
from barnabas.spark.pipeline.load import load_pipeline
from barnabas.spark.pipeline.model import Pipeline, TopicSink
from barnabas.spark.pipeline.status import status_of

MS_PER_S: Final = 1000
LAST_BATCH: Final = ("query", "batch_id", "rows_per_second", "batch_ms", "lag", "state_rows", "state_bytes")
# A pipeline that has not written for so long does not run any more, whatever it wrote last.
SILENT_S_MAX: Final = 12 * BEAT_S


class WatchedPipelines:
    """Reads the files again for each answer, so that changes show."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        pipeline_files(self._paths)

    def list(self) -> list[dict[str, Any]]:
        rows = []
        for file in pipeline_files(self._paths):
            try:
                rows.append(_row(file, load_pipeline(file)))
            except (KafkaError, OSError) as error:
                rows.append({"name": file.stem, "file": str(file), "state": "invalid", "error": str(error)})
        return rows

    def show(self, name: str) -> dict[str, Any] | None:
        for file in pipeline_files(self._paths):
            try:
                declared = load_pipeline(file)
            except (KafkaError, OSError):
                continue
            if declared.name == name:
                return _whole(file, declared)
        return None


def _row(file: Path, pipeline: Pipeline) -> dict[str, Any]:
    journal = _journal(pipeline)
    queries = journal["queries"].items()
    lasts = [batches[-1] for name, batches in queries if batches and name != letters_name(pipeline)]
    # Of several queries, the one that is the furthest behind.
    last: dict[str, Any] = max(lasts, key=lambda batch: batch.get("lag") or 0, default={})
    return {
        "name": pipeline.name,
        "file": str(file),
        "state": journal["state"],
        "error": journal["error"],
        "started_ms": journal.get("started_ms"),
        "updated_ms": journal.get("updated_ms"),
        "rows": journal.get("rows", 0),
        **{name: last.get(name) for name in LAST_BATCH},
    }


def _journal(pipeline: Pipeline) -> dict[str, Any]:
    assert pipeline.checkpoint is not None
    found = read_journal(pipeline.checkpoint)
    if found is None:
        return {"state": "unknown", "error": None, "queries": {}}
    silent_s = time.time() - found["updated_ms"] / MS_PER_S
    if found["state"] == "running" and (silent_s > SILENT_S_MAX or not _is_alive(found["pid"])):
        ended = "it ended without a word: its process was killed, or its machine stopped"
        found |= {"state": "failed", "error": ended}
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _whole(file: Path, pipeline: Pipeline) -> dict[str, Any]:
    journal = _journal(pipeline)
    status: dict[str, Any] = {"queries": [], "partitions": []}
    problem = None
    try:
        status = status_of(pipeline)
    except (KafkaError, OSError) as error:
        problem = str(error)
    letters = pipeline.dead_letters
    return {
        **_row(file, pipeline),
        "guarantee": pipeline.guarantee
        if any(isinstance(sink, TopicSink) for sink in pipeline.sinks_by_key.values())
        else None,
        "trigger": pipeline.trigger,
        "checkpoint": pipeline.checkpoint,
        "groups": list(groups_of(pipeline)),
        "graph": graph_of(pipeline),
        "batches": journal["queries"],
        "queries": status["queries"],
        "partitions": status["partitions"],
        "total_lag": status.get("lag"),
        "letters_topic": None if letters is None else letters.topic,
        "problem": problem,
    }
