"""The simulation finds each bug that is planted, by few seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.planted_bugs import BUGS

ROOT: Final = Path(__file__).parents[2]
WAIT_S: Final = 300


@pytest.mark.slow
@pytest.mark.parametrize("name", [bug.name for bug in BUGS])
def test_a_planted_bug_is_found(name: str) -> None:
    """In a process of its own, as plain Python: functions of compiled modules cannot be replaced."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.simulation.planted_bugs", name],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"{name}: found by seed "), run.stdout
