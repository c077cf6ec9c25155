"""Pipelines: their graphs, batches, lag, and the last error. The files are named when the console starts."""

from __future__ import annotations

from typing import Any

from barnabas.console.api.call import Call, Console
from barnabas.errors import ResourceNotFound


def list_pipelines(console: Console, call: Call) -> Any:
    return {"pipelines": [] if console.pipelines is None else console.pipelines.list()}


def show_pipeline(console: Console, call: Call) -> Any:
    name = call.path["name"]
    found = None if console.pipelines is None else console.pipelines.show(name)
    if found is None:
        raise ResourceNotFound(
            f"there is no pipeline {name}: name its file with --pipeline when the console starts"
        )
    return found
