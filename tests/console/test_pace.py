"""Long searches step back, and do not stand still on a busy machine."""

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
        seen.append("eager" if name == threading.main_thread().name else "aside")
        if seen[-1] == "aside" and hasattr(os, "SCHED_IDLE"):
            assert os.sched_getscheduler(0) == os.SCHED_IDLE
        time.sleep(pauses_s.get(number, 0))
        yield


def test_a_short_search_has_the_ordinary_priority() -> None:
    seen: list[str] = []
    pace = Pace()
    pace.run(steps(seen, 5, {}))
    pace.close()
    assert seen == ["eager"] * 5
    if hasattr(os, "SCHED_IDLE"):
        assert os.sched_getscheduler(0) != os.SCHED_IDLE


def test_a_long_search_steps_back_and_a_new_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paces, "EAGER_S", 1e-9)
    # However busy the machine is, no step of this test counts as one that waits.
    monkeypatch.setattr(paces, "WAITED_S_MIN", 1_000.0)
    seen: list[str] = []
    pace = Pace()
    pace.begin_search()
    pace.run(steps(seen, 4, {}))
    assert seen == ["eager", "aside", "aside", "aside"]
    pace.begin_search()
    pace.run(steps(seen, 2, {}))
    pace.close()
    assert seen[4:] == ["eager", "aside"]


def test_a_search_that_waits_for_others_makes_up_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paces, "EAGER_S", 1e-9)
    monkeypatch.setattr(paces, "WAITED_S_MIN", 0.3)
    seen: list[str] = []
    pace = Pace()
    pace.begin_search()
    pace.run(steps(seen, 4, {1: 0.5, 2: 0.9}))
    pace.close()
    assert seen[:3] == ["eager", "aside", "eager"]


def test_an_error_in_a_step_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paces, "EAGER_S", 1e-9)

    def fails() -> Iterator[None]:
        yield
        raise OSError("gone")

    pace = Pace()
    pace.begin_search()
    with pytest.raises(OSError, match="gone"):
        pace.run(fails())
    pace.close()
