"""The pipelines in a folder, from their files and checkpoints. Nothing here needs Spark or a broker."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.errors import InvalidConfig, KafkaError
from barnabas.spark.pipeline.checkpoint import read_checkpoint
from barnabas.spark.pipeline.describe import describe_sink
from barnabas.spark.pipeline.flows import flows_of
from barnabas.spark.pipeline.load import load_pipeline
from barnabas.spark.pipeline.model import Pipeline
from barnabas.spark.pipeline.tables import FILE_BYTES_MAX, InvalidPipeline

FILES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A file that declares a pipeline."""

    file: str
    name: str
    is_valid: bool
    reads: str
    writes: str
    state: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def listed(paths: Iterable[Path]) -> list[Listed]:
    """The pipelines of files and folders, by file; folders inside of folders are not searched."""
    return [_row(path) for path in pipeline_files(paths)]


def pipeline_files(paths: Iterable[Path]) -> list[Path]:
    """Files as they are, and the files *.toml of folders that declare pipelines."""
    found: list[Path] = []
    for path in paths:
        found += (
            [each for each in sorted(path.glob("*.toml")) if _is_pipeline(each)] if path.is_dir() else [path]
        )
    if len(found) > FILES_MAX:
        raise InvalidConfig(f"there are {len(found)} files of pipelines; the limit is {FILES_MAX}")
    return found


def _is_pipeline(path: Path) -> bool:
    """Whether the file is meant as a pipeline: other tools have TOML files too. One that is no TOML may be meant so."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            found = tomllib.loads(file.read(FILE_BYTES_MAX).decode())
    except ValueError:
        return True
    return isinstance(found.get("sources"), dict)


def _row(path: Path) -> Listed:
    try:
        pipeline = load_pipeline(path)
    except InvalidPipeline as error:
        more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
        return Listed(
            file=str(path),
            name=path.stem,
            is_valid=False,
            reads="",
            writes="",
            state=f"invalid: {error.faults[0]}{more}",
        )
    return Listed(
        file=str(path),
        name=pipeline.name,
        is_valid=True,
        reads=", ".join(
            f"{name} ({'table' if source.as_table else source.TYPE})"
            for name, source in pipeline.sources.items()
        ),
        writes=", ".join(describe_sink(sink) for sink in pipeline.sinks_by_key.values()),
        state=_state(pipeline),
    )


def _state(pipeline: Pipeline) -> str:
    if not pipeline.is_streaming:
        return "runs once"
    return "; ".join(dict.fromkeys(_progress(flow.checkpoint) for flow in flows_of(pipeline)))


def _progress(checkpoint: str) -> str:
    try:
        found = read_checkpoint(checkpoint)
    except KafkaError as error:
        return str(error)
    if found is None or found.committed_batch_id is None:
        return "has not run yet"
    repeats = found.planned_batch_id != found.committed_batch_id
    return f"batch {found.committed_batch_id} is done" + (
        f", batch {found.planned_batch_id} is under way or to be repeated" if repeats else ""
    )
