"""Which queries of Spark a pipeline has, and to which sinks each of them writes. Nothing here needs Spark.

A file with `[sink]` is one query with the name, the checkpoint and the group of the pipeline. A file with tables
`[sinks.NAME]` has one query for each source or step that sinks take their rows from:

    query            checkpoint                 sinks
    NAME.ROWS        CHECKPOINT/rows/ROWS       all that take the rows of ROWS, in the order of the file
    NAME.ROWS.SINK   CHECKPOINT/files/SINK      one sink of files: Spark writes these itself, one query to a folder

A query reads and computes a batch once, and then writes it to one sink after the other (`fan_out.py`). Each sink knows
by itself which batches it has; a topic has its group NAME.SINK for that. If a driver dies between two sinks, the next
one repeats the batch: the first sink skips it, and the second one takes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.spark.pipeline.checkpoint import DEAD_LETTERS
from barnabas.spark.pipeline.model import FileSink, Pipeline, Sink

ROWS_FOLDER: Final = "rows"
FILES_FOLDER: Final = "files"
FLOW_FOLDERS: Final = (ROWS_FOLDER, FILES_FOLDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A sink, and the rows that it takes."""

    key: str
    """The key of its table: `sink`, or `sinks.NAME`."""
    sink: Sink
    rows: str
    """The name of a source or of a step."""
    group: str
    """The group that shows how far the sink is; it is also the transactional id of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A query, and the sinks that it writes to."""

    name: str
    checkpoint: str
    rows: str
    outputs: tuple[Output, ...]


def outputs_of(pipeline: Pipeline) -> tuple[Output, ...]:
    steps = pipeline.transforms
    last = steps[-1].name if steps else next(iter(pipeline.sources))
    return tuple(
        Output(
            key=key,
            sink=sink,
            rows=getattr(sink, "from_", None) or last,
            group=pipeline.name if pipeline.sink is not None else f"{pipeline.name}.{_name(key)}",
        )
        for key, sink in pipeline.sinks_by_key.items()
    )


def flows_of(pipeline: Pipeline, checkpoint: str | None = None) -> list[Flow]:
    """The queries, without that of dead letters; `checkpoint` is another one than the file's."""
    location = checkpoint or pipeline.checkpoint
    assert location is not None
    outputs = outputs_of(pipeline)
    if pipeline.sink is not None:
        return [Flow(name=pipeline.name, checkpoint=location, rows=outputs[0].rows, outputs=outputs)]
    sharing: dict[str, list[Output]] = {}
    for output in outputs:
        files = isinstance(output.sink, FileSink)
        folder = f"{FILES_FOLDER}/{_name(output.key)}" if files else f"{ROWS_FOLDER}/{output.rows}"
        sharing.setdefault(folder, []).append(output)
    return [
        Flow(
            name=".".join((pipeline.name, first.rows, *([_name(first.key)] if is_files else []))),
            checkpoint=f"{location}/{folder}",
            rows=first.rows,
            outputs=tuple(found),
        )
        for folder, found in sharing.items()
        for first, is_files in [(found[0], isinstance(found[0].sink, FileSink))]
    ]


def groups_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The groups that have the progress of the sinks."""
    return tuple(output.group for output in outputs_of(pipeline))


def letters_name(pipeline: Pipeline) -> str:
    """The query and the group of dead letters, where they are a query of their own."""
    return f"{pipeline.name}.{DEAD_LETTERS}"


def _name(key: str) -> str:
    return key.rpartition(".")[2]
