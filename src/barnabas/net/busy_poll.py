"""An event loop that polls for a moment before it sleeps.

A sleeping thread has to be woken up, and an idle processor has to be woken up with it. On a virtual machine this takes
several times as long as a small request. A client that waits for each response sends its next request sooner than that.
So before the loop waits, it polls for events for a few microseconds. An idle loop then sleeps like any other loop. A
loop with a connection that waits to write sleeps at once: the selector reports when it can write, and the longer this
takes, the more can be written at once.

The loop also measures for how long it was idle.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Any

from barnabas.config.broker_settings import processor_count


class BusyPollSelector(selectors.DefaultSelector):
    def __init__(self, duration_us: int) -> None:
        super().__init__()
        self._duration_ns = duration_us * 1_000
        self._writers: set[int] = set()
        self.idle_ns = 0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._noted(super().register(fileobj, events, data))

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._noted(super().modify(fileobj, events, data))

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._writers.discard(key.fd)
        return key

    def _noted(self, key: selectors.SelectorKey) -> selectors.SelectorKey:
        if key.events & selectors.EVENT_WRITE:
            self._writers.add(key.fd)
        else:
            self._writers.discard(key.fd)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        now_ns = begin_ns = time.monotonic_ns()
        ready: list[tuple[selectors.SelectorKey, int]] = []
        if not self._writers:
            end_ns = begin_ns + self._duration_ns
            while now_ns < end_ns and not ready:
                ready = super().select(0)
                now_ns = time.monotonic_ns()
        if not ready:
            ready = super().select(timeout)
            now_ns = time.monotonic_ns()
        self.idle_ns += now_ns - begin_ns
        return ready


class BrokerEventLoop(asyncio.SelectorEventLoop):
    def __init__(self, busy_poll_us: int) -> None:
        self._watched_selector = BusyPollSelector(busy_poll_us)
        super().__init__(self._watched_selector)

    @property
    def idle_s(self) -> float:
        """The idle time since the start of the loop."""
        return self._watched_selector.idle_ns / 1e9


def new_event_loop(busy_poll_us: int) -> BrokerEventLoop:
    """A loop that sleeps at once if the setting is 0, or if there is only one processor, which others may need."""
    return BrokerEventLoop(0 if processor_count() == 1 else max(busy_poll_us, 0))
