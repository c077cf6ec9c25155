"""Functions of a pipeline and where they are found. Nothing here needs a session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from barnabas.errors import InvalidConfig
from barnabas.spark.pipeline.functions import is_findable, load_function


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_modules_beside_the_file(tmp_path: Path) -> None:
    """Two pipelines may have modules of the same name."""
    for number in (1, 2):
        folder = tmp_path / str(number)
        (folder / "package_of_steps").mkdir(parents=True)
        (folder / "package_of_steps" / "steps.py").write_text(f"def number():\n    return {number}\n")
        assert is_findable("package_of_steps.steps:number", folder)
        assert load_function("package_of_steps.steps:number", folder)() == number
    assert load_function("package_of_steps.steps:number", tmp_path / "1")() == 1


def test_modules_where_python_looks(tmp_path: Path) -> None:
    assert is_findable("json:loads", tmp_path)
    assert load_function("json:loads", tmp_path)("1") == 1
    assert not is_findable("no_such_module:f", tmp_path)


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken_steps.py").write_text("def (")
    with pytest.raises(InvalidConfig, match="broken_steps:f: the module cannot be imported: SyntaxError"):
        load_function("broken_steps:f", tmp_path)
    (tmp_path / "empty_steps.py").write_text("f = 1\n")
    with pytest.raises(InvalidConfig, match=r"empty_steps\.py has no function f; it has none"):
        load_function("empty_steps:f", tmp_path)
