from __future__ import annotations

import logging

from barnabas.primitives.log_limit import KINDS_MAX, LogLimit


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class LimitedLog:
    """A logger whose clock stands still until it is moved."""

    def __init__(self, lines_per_second: float, burst: int) -> None:
        self.now_s = 100.0
        self.handler = Lines()
        self.handler.addFilter(LogLimit(lines_per_second, lambda: self.now_s, burst=burst))
        self.logger = logging.Logger("tests.limited")
        self.logger.addHandler(self.handler)

    def take(self) -> list[str]:
        lines = self.handler.lines
        self.handler.lines = []
        return lines


def test_a_burst_comes_through_and_the_rest_is_counted() -> None:
    log = LimitedLog(1, burst=3)
    for number in range(10):
        log.logger.warning("connection from %s closed: %s", number, "bad frame")
    assert log.take() == [f"connection from {number} closed: bad frame" for number in range(3)]
    log.now_s += 1
    for number in range(10, 15):
        log.logger.warning("connection from %s closed: %s", number, "bad frame")
    assert log.take() == ["connection from 10 closed: bad frame (7 more like this suppressed)"]
    log.now_s += 60
    for number in range(20, 23):
        log.logger.warning("connection from %s closed: %s", number, "bad frame")
    assert log.take() == [
        "connection from 20 closed: bad frame (4 more like this suppressed)",
        "connection from 21 closed: bad frame",
        "connection from 22 closed: bad frame",
    ]


def test_each_kind_has_a_bound_of_its_own() -> None:
    log = LimitedLog(1, burst=1)
    for _ in range(5):
        log.logger.warning("one %d", 1)
    log.logger.error("another %d", 2)
    assert log.take() == ["one 1", "another 2"]


def test_no_bound() -> None:
    log = LimitedLog(0, burst=1)
    for _ in range(50):
        log.logger.info("line")
    assert len(log.take()) == 50


def test_texts_that_are_always_new_are_one_kind_in_the_end() -> None:
    log = LimitedLog(1, burst=1)
    for number in range(KINDS_MAX + 500):
        log.logger.info(f"line {number}")
    assert len(log.take()) == KINDS_MAX + 1
