from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

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
