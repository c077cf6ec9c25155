"""What a running pipeline tells others: its last batches and its last error, in a file of its checkpoint.

    barnabas-progress.json    {"state": "running" | "stopped" | "failed", "pid": …, "updated_ms": …, "error": …,
                               "queries": {"<query>": [<batch>, …]}}

The file is replaced as a whole. Nothing depends on it: where a checkpoint is not on this machine, there is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from barnabas.spark.pipeline.checkpoint import NotLocal, local_path
from barnabas.spark.pipeline.progress import BatchReport

FILE_NAME: Final = "barnabas-progress.json"
BATCHES_MAX: Final = 120
ERROR_CHARACTERS_MAX: Final = 4_000
FILE_BYTES_MAX: Final = 4 << 20
# A pipeline without data writes so often that it still runs.
BEAT_S: Final = 5.0


class Journal:
    """Writes the file; use it in a `with` around the run. An error that ends the run is noted."""

    def __init__(self, checkpoint: str, *, started_ms: int | None = None) -> None:
        try:
            self._path: Path | None = local_path(checkpoint) / FILE_NAME
        except NotLocal:
            self._path = None
        self._started_ms = started_ms if started_ms is not None else _now_ms()
        self._queries: dict[str, deque[dict[str, Any]]] = {}
        self._rows = 0
        self._written_s = 0.0

    def __enter__(self) -> Self:
        self._write("running")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = error is not None and not isinstance(error, SystemExit | KeyboardInterrupt)
        self._write("failed" if failed else "stopped", str(error) if failed else None)

    def note(self, report: BatchReport) -> None:
        self._queries.setdefault(report.query, deque(maxlen=BATCHES_MAX)).append(report.as_dict())
        self._rows += report.rows
        self._write("running")

    def beat(self) -> None:
        if time.monotonic() - self._written_s > BEAT_S:
            self._write("running")

    def _write(self, state: str, error: str | None = None) -> None:
        self._written_s = time.monotonic()
        if self._path is None:
            return
        content = {
            "state": state,
            "pid": os.getpid(),
            "started_ms": self._started_ms,
            "updated_ms": _now_ms(),
            "error": None if error is None else error[:ERROR_CHARACTERS_MAX],
            "rows": self._rows,
            "queries": {name: list(batches) for name, batches in self._queries.items()},
        }
        temporary = self._path.with_name(f".{FILE_NAME}.tmp")
        # A disk that is full must not stop a pipeline that could still run.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content), encoding="utf-8")
            temporary.replace(self._path)


def read_journal(checkpoint: str) -> dict[str, Any] | None:
    """The content of the file; None if there is none that can be read."""
    try:
        path = local_path(checkpoint) / FILE_NAME
        with path.open("rb") as file:
            found = json.loads(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError, NotLocal):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("queries"), dict) else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
