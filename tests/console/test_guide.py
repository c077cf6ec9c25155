"""The requests of docs/CONSOLE.md, as its section for scripts shows them."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.console.running import RunningConsole
from tests.examples import run_page

GUIDE = Path(__file__).parents[2] / "docs" / "CONSOLE.md"


@pytest.mark.slow
def test_the_requests_of_the_guide(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    with Broker() as broker, RunningConsole(broker.bootstrap) as console:
        count = run_page(
            text.replace("http://127.0.0.1:8080", console.address),
            tmp_path,
            start=nullcontext,
            variables={"BARNABAS_BOOTSTRAP": broker.bootstrap},
        )
    assert count == 3
