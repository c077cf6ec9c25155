"""After a change the console waits until brokers show it, within a bound."""

from __future__ import annotations

import time

import pytest

from barnabas.console.api import shown
from barnabas.console.api.shown import wait_until_shown
from barnabas.errors import ClusterAuthorizationFailed


def test_a_change_that_is_shown_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SHOWN_POLL_S", 0.001)
    answers = iter([False, False, True])
    wait_until_shown(lambda: next(answers))
    assert next(answers, None) is None


def test_a_change_that_is_never_shown_is_waited_for_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "SHOWN_S_MAX", 0.05)
    started_s = time.monotonic()
    wait_until_shown(lambda: False)
    assert time.monotonic() - started_s >= 0.05


def test_a_change_that_its_user_may_not_look_at_is_not_waited_for() -> None:
    asked = []

    def refuse() -> bool:
        asked.append(1)
        raise ClusterAuthorizationFailed("no")

    wait_until_shown(refuse)
    assert asked == [1]
