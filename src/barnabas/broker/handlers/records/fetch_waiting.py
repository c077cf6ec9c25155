"""Fetches that wait for enough records, or for their timeout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.broker import Broker
from barnabas.broker.waiting.purgatory import DelayedOperation

if TYPE_CHECKING:
    from barnabas.broker.handlers.records.fetch import Fetch

# A fetch of many partitions checks them again after this pause, or after a multiple of the time that the last check
# took, if that is longer.
PAUSE_MIN_S: Final = 0.01
PAUSE_FACTOR: Final = 10
# The most partitions that such fetches wait for together, about 80 MB. Fetches beyond that are answered at once.
WIDE_WAITING_MAX: Final = 200_000


class DelayedFetch(DelayedOperation):
    def __init__(self, timeout_ms: int, fetch: Fetch) -> None:
        super().__init__(timeout_ms)
        self._fetch: Fetch | None = fetch

    def try_complete(self) -> bool:
        fetch = self._fetch
        return fetch is not None and fetch.has_enough() and self.force_complete()

    def on_complete(self) -> None:
        fetch = self._fetch
        assert fetch is not None
        # A completed operation may stay in the purgatory's lists for a while.
        self._fetch = None
        fetch.read_again()


class WideDelayedFetch(DelayedOperation):
    """A fetch of many partitions. When any partition changes, it checks its own partitions in turns."""

    def __init__(self, timeout_ms: int, fetch: Fetch, broker: Broker) -> None:
        super().__init__(timeout_ms)
        broker.replicas.delayed.wide_fetch_partitions += fetch.target_count
        self._fetch: Fetch | None = fetch
        self._broker = broker
        self._is_looking = False
        self._has_changed = False
        self._began_ns = 0
        self._position = 0

    def try_complete(self) -> bool:
        """Never completes at once. Starts a check if none is running."""
        if self._is_looking:
            self._has_changed = True
        else:
            self._is_looking = True
            self._begin()
        return False

    def on_complete(self) -> None:
        fetch = self._fetch
        assert fetch is not None
        self._fetch = None
        self._broker.replicas.delayed.wide_fetch_partitions -= fetch.target_count
        fetch.read_again()

    def _begin(self) -> None:
        self._has_changed = False
        self._position = 0
        self._began_ns = self._broker.clock.monotonic_ns()
        self._broker.turns.add(self._look)

    def _look(self) -> None:
        fetch = self._fetch
        if fetch is None:
            return
        has_enough, self._position = fetch.look_through(self._position, self._broker.turns.end_ns())
        if has_enough:
            self.force_complete()
        elif self._position < fetch.target_count:
            self._broker.turns.add(self._look)
        else:
            took_s = (self._broker.clock.monotonic_ns() - self._began_ns) / 1e9
            self._broker.turns.add_later(max(PAUSE_MIN_S, PAUSE_FACTOR * took_s), self._end_pause)

    def _end_pause(self) -> None:
        self._is_looking = False
        if self._has_changed and self._fetch is not None:
            self._is_looking = True
            self._begin()
