"""Averages and maxima of the last half minute to minute."""

from __future__ import annotations

from barnabas.client.samples import WINDOW_S, Samples


def test_the_values_of_two_windows_count() -> None:
    samples = Samples("size")
    start_s = 1_000.0

    def at(window: float) -> tuple[float, float]:
        found = samples.metrics(start_s + window * WINDOW_S)
        assert found.keys() == {"size-avg", "size-max"}
        return found["size-avg"], found["size-max"]

    assert at(0) == (0, 0)
    samples.add(9, start_s)
    samples.add(3, start_s + WINDOW_S / 2)
    assert at(0.9) == (6, 9)
    # The window has ended, and no value has begun the next one.
    assert at(1.9) == (6, 9)
    samples.add(0, start_s + WINDOW_S)
    assert at(1.5) == (4, 9)
    samples.add(5, start_s + 2 * WINDOW_S)
    assert at(2) == (2.5, 5)
    assert at(3.5) == (5, 5)
    assert at(4) == (0, 0)
    # Values of long ago do not come back.
    samples.add(7, start_s + 10 * WINDOW_S)
    assert at(10.5) == (7, 7)
