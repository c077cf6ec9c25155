"""What the clients of the histories write down about errors: what a rebalance or a retry covers is no error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Final

from confluent_kafka import KafkaError

from tests.histories.client import EXIT_HUNG, Client
from tests.histories.confluent_clients import note_error
from tests.histories.history import GaveUp, Recorder, read_events
from tests.histories.test_workload import plan

ROOT: Final = Path(__file__).parents[2]
WAIT_S: Final = 60
# The call that does not return waits for an event that nobody sets.
HANGS: Final = """
import sys
from pathlib import Path
from threading import Event
from tests.histories.client import Client
from tests.histories.confluent_clients import given_up_after
from tests.histories.history import Recorder
from tests.histories.test_workload import plan
client = Client(plan("copy", "copier"), Recorder(Path(sys.argv[1])), Event())
with given_up_after(client, 0.05):
    Event().wait()
"""


def test_an_error_of_a_member_that_nothing_covers_is_written_down(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with Recorder(path) as recorder:
        client = Client(plan("consume", "reader"), recorder, Event())
        for code in (
            KafkaError.ILLEGAL_GENERATION,
            KafkaError.REBALANCE_IN_PROGRESS,
            KafkaError.NOT_COORDINATOR,
            KafkaError.OFFSET_METADATA_TOO_LARGE,
        ):
            note_error(client, KafkaError(code))
        note_error(client, None)
    [error] = read_events([path])
    assert isinstance(error, GaveUp)
    assert "OFFSET_METADATA_TOO_LARGE" in error.error


def test_a_client_that_hangs_ends_and_writes_that_down(tmp_path: Path) -> None:
    path = tmp_path / "events"
    run = subprocess.run(
        [sys.executable, "-c", HANGS, str(path)], cwd=ROOT, timeout=WAIT_S, check=False, capture_output=True
    )
    assert run.returncode == EXIT_HUNG, run.stderr
    [error] = read_events([path])
    assert isinstance(error, GaveUp)
    assert "has not returned" in error.error
