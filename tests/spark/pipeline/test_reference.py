"""docs/PIPELINES.md says what the model says, and what it shows are pipelines."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.main import barnabas
from barnabas.spark.pipeline.load import load_pipeline
from barnabas.spark.pipeline.reference import reference
from tests.examples import matches

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "PIPELINES.md").read_text(encoding="utf-8")


def test_the_reference_is_the_models() -> None:
    """`python -m barnabas.spark.pipeline.reference` prints it."""
    assert GUIDE.endswith(f"## Reference\n\n{reference()}")


@pytest.mark.parametrize("text", re.findall(r"^```toml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL))
def test_the_files_are_valid(text: str, tmp_path: Path) -> None:
    (tmp_path / "steps.py").touch()
    (tmp_path / "pipeline.toml").write_text(text)
    load_pipeline(tmp_path / "pipeline.toml", {})


def test_the_errors_that_are_shown(tmp_path: Path) -> None:
    """Those of `barnabas pipeline validate` for the first file of the page with two mistakes."""
    first = re.search(r"^```toml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert first is not None
    wrong = first[1].replace('trigger = "10s"', 'output_mode = "apend"')
    wrong = wrong.replace('topics = "orders"', 'topics = "orders"\nstartng = "latest"')
    (tmp_path / "orders.toml").write_text(wrong)
    done = CliRunner().invoke(barnabas, ["pipeline", "validate", "--no-spark", str(tmp_path / "orders.toml")])
    told = done.output.replace(str(tmp_path / "orders.toml"), "orders.toml")
    shown = re.findall(r"^    (barnabas: orders\.toml: .*\n)", GUIDE, re.MULTILINE)[:2]
    assert matches(told, "".join(shown))


def test_the_state_that_is_shown_is_tested() -> None:
    from tests.spark.pipeline.test_run import PROCESSOR

    assert textwrap.dedent(PROCESSOR).strip() in GUIDE


@pytest.mark.parametrize("path", sorted((ROOT / "demo").glob("*.toml")), ids=lambda path: path.stem)
def test_the_demos_files_are_valid(path: Path) -> None:
    assert load_pipeline(path, {}).name == path.stem
