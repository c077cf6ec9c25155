"""Searches step back, and do not stand still on a busy machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from barnabas.console.search import pace as paces
from barnabas.console.search.pace import Pace


def steps(seen: list[str], count: int, pauses_s: dict[int, float]) -> Iterator[None]:
    for number in range(count):
        name = threading.current_thread().name
        seen.append("ordinary" if name == threading.main_thread().name else "aside")
        if seen[-1] == "aside" and hasattr(os, "SCHED_IDLE"):
            assert os.sched_getscheduler(0) == os.SCHED_IDLE
        time.sleep(pauses_s.get(number, 0))
        yield


def test_a_search_steps_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # However busy the machine is, no step of this test counts as one that waits.
    monkeypatch.setattr(paces, "WAITED_S_MIN", 1_000.0)
    seen: list[str] = []
    pace = Pace()
    for _ in range(2):
        pace.begin_search()
        pace.run(steps(seen, 4, {}))
    pace.close()
    assert seen == ["aside"] * 8
    if hasattr(os, "SCHED_IDLE"):
        assert os.sched_getscheduler(0) != os.SCHED_IDLE


def test_a_search_that_waits_for_others_makes_up_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paces, "WAITED_S_MIN", 0.3)
    seen: list[str] = []
    pace = Pace()
    pace.begin_search()
    pace.run(steps(seen, 3, {0: 0.5, 1: 0.9}))
    pace.close()
    assert seen[:2] == ["aside", "ordinary"]


def test_an_error_in_a_step_arrives() -> None:
    def fails() -> Iterator[None]:
        yield
        raise OSError("gone")

    pace = Pace()
    pace.begin_search()
    with pytest.raises(OSError, match="gone"):
        pace.run(fails())
    pace.close()
