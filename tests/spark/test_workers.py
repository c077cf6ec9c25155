"""Workers that run another Python than the driver: one line that says so, before anything runs."""

from __future__ import annotations

import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.errors import InvalidConfig
from barnabas.spark import register
from barnabas.spark.failures import failure_of
from barnabas.spark.workers import PYTHON_SETTING, _is_ours, _require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMEDY = f"set PYSPARK_PYTHON={sys.executable} before the session starts, or install barnabas[spark] there"


@pytest.fixture(scope="module")
def other_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same version of Python in an environment that has nothing."""
    folder = tmp_path_factory.mktemp("other")
    venv.create(folder, with_pip=False)
    return str(folder / "bin" / "python")


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_environment_without_barnabas(other_python: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        _require(other_python, "")
    assert str(caught.value) == (
        f"Spark's workers run {other_python}, which cannot import barnabas.spark"
        f" (ModuleNotFoundError: No module named 'barnabas'): {REMEDY}"
    )


def test_another_version_and_none(tmp_path: Path) -> None:
    old = script(tmp_path, "echo 3.8")
    with pytest.raises(InvalidConfig, match=r"which is Python 3\.8, and this is Python 3\."):
        _require(old, "")
    with pytest.raises(InvalidConfig, match=r"which cannot be started \(No such file or directory\)"):
        _require(str(tmp_path / "none"), "")


def test_one_binary_serves_several_environments(other_python: str) -> None:
    assert _is_ours(sys.executable)
    assert not _is_ours(other_python)
    assert not _is_ours("no-such-python")


def test_a_session_is_refused(
    spark: SparkSession, other_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a setting of the session says so or PYSPARK_PYTHON did when it was started."""
    register(spark)
    plain = spark.newSession()
    plain.conf.set(PYTHON_SETTING, other_python)
    with pytest.raises(InvalidConfig, match=f"Spark's workers run {other_python}, which cannot import"):
        register(plain)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", other_python)
    with pytest.raises(InvalidConfig) as caught:
        register(spark.newSession())
    assert "\n" not in str(caught.value)


def test_workers_of_other_machines() -> None:
    """They cannot be asked; what they raise is told in the same words."""
    text = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'barnabas'\n"
    assert str(failure_of(text)).startswith("Spark's workers run a Python without barnabas: ")
