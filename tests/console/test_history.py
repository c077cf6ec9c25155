from __future__ import annotations

from barnabas.console import history
from barnabas.console.history import SAMPLES_MAX, History


def test_series_share_their_times_and_have_gaps() -> None:
    past = History()
    past.add(1, {"a": 1.0})
    past.add(2, {"a": 2.0, "b": 5.0})
    past.add(3, {"b": 6.0})
    assert past.read(["a", "b", "c"]) == {
        "times_ms": [1, 2, 3],
        "series": {"a": [1.0, 2.0, None], "b": [None, 5.0, 6.0]},
    }


def test_an_hour_is_kept_and_series_without_values_go() -> None:
    past = History()
    past.add(0, {"gone": 1.0, "a": 0.0})
    for number in range(1, SAMPLES_MAX + 1):
        past.add(number, {"a": float(number)})
    found = past.read(["gone", "a"])
    assert found["times_ms"] == list(range(1, SAMPLES_MAX + 1))
    assert found["series"] == {"a": [float(each) for each in range(1, SAMPLES_MAX + 1)]}


def test_the_number_of_series_is_bounded() -> None:
    past = History()
    past.add(0, {str(number): 1.0 for number in range(history.SERIES_MAX + 10)})
    found = past.read([str(number) for number in range(history.SERIES_MAX + 10)])["series"]
    assert isinstance(found, dict)
    assert len(found) == history.SERIES_MAX
