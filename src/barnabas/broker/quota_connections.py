"""How fast connections may be made: to the broker in all, and from each address.

`max.connection.creation.rate` bounds the first, the quota `connection_creation_rate` of an address the second. Rates
are measured over the same windows as those of clients, and nobody has to wait for longer than one window at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.quotas import CONNECTION_CREATION_RATE, Quotas, recent
from barnabas.broker.rates import WINDOW_MS, Rate
from barnabas.clock import Clock


class ConnectionQuota:
    """What listeners ask about each new connection."""

    def __init__(self, quotas: Quotas, clock: Clock, max_creation_rate: Callable[[], int]) -> None:
        self._quotas = quotas
        self._clock = clock
        self._max_creation_rate = max_creation_rate
        self._rate = Rate(self._now_ms())
        self._rates_by_address: dict[str, Rate] = {}

    def delay_ms(self) -> int:
        now_ms = self._now_ms()
        self._rate.record(1, now_ms)
        return _wait_ms(self._rate, self._max_creation_rate(), now_ms)

    def refuse_ms(self, address: str) -> int:
        if not self._quotas.has(CONNECTION_CREATION_RATE):
            return 0
        limit = self._quotas.limit_of_ip(CONNECTION_CREATION_RATE, address)
        if limit is None:
            return 0
        now_ms = self._now_ms()
        rate = recent(self._rates_by_address, address, lambda: Rate(now_ms))
        rate.record(1, now_ms)
        wait_ms = _wait_ms(rate, limit, now_ms)
        if wait_ms > 0:
            rate.record(-1, now_ms)
            self._rate.record(-1, now_ms)
        return wait_ms

    def _now_ms(self) -> int:
        # Durations only: the wall clock may jump.
        return self._clock.monotonic_ns() // 1_000_000


def _wait_ms(rate: Rate, limit: float, now_ms: int) -> int:
    # A limit of nothing is never kept.
    return min(rate.throttle_ms(limit, now_ms), WINDOW_MS) if limit > 0 else WINDOW_MS
