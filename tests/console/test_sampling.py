"""The sampler goes on, whatever a sample meets."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from barnabas.clock import SystemClock
from barnabas.console.connection import Connection
from barnabas.console.sampling import Sampler
from barnabas.errors import RequestTimedOut
from barnabas.testing import Broker

SLOW_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlucky(Connection):
    """A connection whose first admin clients fail."""

    errors: list[Exception]
    failed: threading.Event = field(default_factory=threading.Event)

    def new_admin(self) -> Any:
        if self.errors:
            time.sleep(SLOW_S)
            self.failed.set()
            raise self.errors.pop()
        return Connection.new_admin(self)


@pytest.mark.parametrize("error", [RequestTimedOut("no answer"), ValueError("a bug")])
def test_a_sample_that_fails_is_taken_again_soon(broker: Broker, error: Exception) -> None:
    """After the interval, not after ten times the duration of what failed; and not only after errors of Kafka."""
    settings = {"bootstrap.servers": broker.bootstrap}
    connection = Unlucky(
        bootstrap=broker.bootstrap, admin=settings, consumer=settings, producer=settings, errors=[error]
    )
    sampler = Sampler(connection, SystemClock(), interval_s=0.05)
    sampler.start()
    try:
        with pytest.raises(type(error)):
            sampler.current()
        failed_s = time.monotonic()
        while True:
            try:
                sampler.current()
                break
            except type(error):
                assert time.monotonic() - failed_s < SLOW_S * 9
                time.sleep(0.01)
    finally:
        sampler.close()
