"""`make demo`: the stream is always the same; all of it in the soak."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from demo.stream import CLICKS, ORDERS, expected_revenue, hour, products

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 900


@pytest.mark.slow
def test_the_hour_is_always_the_same() -> None:
    events = [*products(), *hour()]
    assert Counter(event.topic for event in events) == {
        "products": 12,
        "clicks": CLICKS,
        "orders": ORDERS + 1,
    }
    revenue = expected_revenue(events)
    assert len(revenue) == 18
    assert sum(revenue.values()) == 18_178_200


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("BARNABAS_SOAK") != "1", reason="takes minutes: runs with BARNABAS_SOAK=1")
def test_the_demo(tmp_path: Path) -> None:
    """It checks what it shows by itself."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "demo",
            "--folder",
            str(tmp_path / "demo"),
            "--svg",
            str(tmp_path / "demo.svg"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "each order once: 181,782.00 euros, as sent; 3 broken records in orders-bad" in done.stdout
    assert "@font-face" not in (tmp_path / "demo.svg").read_text()
