from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.spark.pipeline.load import load_pipeline
from barnabas.testing import Broker
from tests.spark.pipeline.running import Load

if TYPE_CHECKING:
    from barnabas.spark.pipeline.model import Pipeline

Write = Callable[..., Path]


@pytest.fixture
def pipeline_file(tmp_path: Path) -> Write:
    """`pipeline_file("name = …")` writes a pipeline's file, and modules beside it."""

    def write(text: str, **modules: str) -> Path:
        for name, code in modules.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
        path = tmp_path / "pipeline.toml"
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def load(pipeline_file: Write, broker: Broker) -> Load:
    def call(text: str, **modules: str) -> Pipeline:
        return load_pipeline(pipeline_file(text, **modules), {"BARNABAS_BOOTSTRAP": broker.bootstrap})

    return call
