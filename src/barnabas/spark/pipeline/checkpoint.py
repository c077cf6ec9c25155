"""Spark's state of a query, read without Spark.

    metadata        {"id":"<query id>"}
    offsets/<n>     v1, a line of JSON about the batch, then a line for each source: where the batch ends, or -
    commits/<n>     exists when the batch is done

A batch with offsets and without a commit was planned, and the sink may have it in part or as a whole: the next run
repeats it.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from barnabas.errors import CorruptMessage, InvalidConfig

DEAD_LETTERS: Final = "dead-letters"
# Where Spark's sink of files notes which batches a folder has. It leaves those out, whichever query they are of.
SINK_LOG: Final = "_spark_metadata"
_FILE_BYTES_MAX: Final = 64 << 20
_OFFSETS_VERSION: Final = "v1"
_NO_OFFSET: Final = "-"


class NotLocal(InvalidConfig):
    """A checkpoint that lies where only Spark can look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How far a query has come."""

    query_id: str
    planned_batch_id: int | None
    committed_batch_id: int | None
    planned_at_ms: int | None
    watermark_ms: int | None
    offsets: tuple[Any, ...]
    """Where the last planned batch ends in each source, in the source's own JSON; None where it has not begun."""


def local_path(location: str) -> Path:
    """The folder of a checkpoint that lies on this machine."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme:
        raise NotLocal(f"{location} is not on this machine, and is not looked into")
    return Path(location)


def read_checkpoint(location: str) -> Checkpoint | None:
    """None if no query has begun there."""
    folder = local_path(location)
    metadata = folder / "metadata"
    if not metadata.exists():
        return None
    query_id = _table(metadata, _text(metadata)).get("id", "")
    planned = _newest(folder / "offsets")
    at_ms = watermark_ms = None
    offsets: tuple[Any, ...] = ()
    if planned is not None:
        path = folder / "offsets" / str(planned)
        version, _, rest = _text(path).partition("\n")
        lines = rest.splitlines()
        if version != _OFFSETS_VERSION or not lines:
            raise CorruptMessage(
                f"{path}: this is no offset log of version 1 but begins with {version[:40]!r}"
            )
        head = _table(path, lines[0])
        at_ms, watermark_ms = head.get("batchTimestampMs"), head.get("batchWatermarkMs")
        offsets = tuple(None if line == _NO_OFFSET else _json(path, line) for line in lines[1:])
    return Checkpoint(
        query_id=str(query_id),
        planned_batch_id=planned,
        committed_batch_id=_newest(folder / "commits"),
        planned_at_ms=at_ms,
        watermark_ms=watermark_ms or None,
        offsets=offsets,
    )


def is_fresh(location: str) -> bool:
    """Whether a query that starts there has no history; a place that cannot be read counts as one with a history."""
    try:
        found = read_checkpoint(location)
    except NotLocal:
        return False
    return found is None or found.planned_batch_id is None


def remove_checkpoint(location: str) -> None:
    remove_folder(local_path(location))


def remove_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _newest(folder: Path) -> int | None:
    numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
    return max(numbers, default=None)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_FILE_BYTES_MAX + 1)
    if len(content) > _FILE_BYTES_MAX:
        raise CorruptMessage(f"{path}: the file has more than {_FILE_BYTES_MAX} bytes")
    return content.decode("utf-8", errors="replace")


def _table(path: Path, line: str) -> dict[str, Any]:
    found = _json(path, line)
    if not isinstance(found, dict):
        raise CorruptMessage(f"{path}: {line[:40]!r} is no JSON object")
    return found


def _json(path: Path, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise CorruptMessage(f"{path}: {line[:40]!r} is no JSON: {error}") from None
