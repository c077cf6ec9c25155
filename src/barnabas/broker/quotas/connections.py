"""Bounds the rate of new connections: to the broker, to each listener, and from each address.

`max.connection.creation.rate` bounds the rates of the broker and of each listener, which can have its own value
(`listener.name.….max.connection.creation.rate`). The quota `connection_creation_rate` bounds the rate of an address.
Rates have the same windows as those of clients, and a connection waits for at most one window at a time. Connections of
clients to other listeners do not slow down the inter-broker listener.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.broker.quotas.quotas import CONNECTION_CREATION_RATE, Quotas, recent
from barnabas.broker.quotas.rates import WINDOW_MS, Rate
from barnabas.clock import Clock
from barnabas.config.broker_config import BrokerConfig

_SETTING: Final = "max.connection.creation.rate"


class ConnectionQuota:
    """Listeners ask it about each new connection. It reads the configuration each time, since it may change."""

    def __init__(self, quotas: Quotas, clock: Clock, config: Callable[[], BrokerConfig]) -> None:
        self._quotas = quotas
        self._clock = clock
        self._config = config
        self._rate = Rate(self._now_ms())
        self._rates_by_listener: dict[str, Rate] = {}
        self._rates_by_address: dict[str, Rate] = {}

    def delay_ms(self, listener: str) -> int:
        now_ms = self._now_ms()
        config = self._config()
        wait_ms = 0
        if not config.is_protected_listener(listener):
            self._rate.record(1, now_ms)
            wait_ms = _wait_ms(self._rate, config.max_connection_creation_rate, now_ms)
        rate = self._rates_by_listener.setdefault(listener, Rate(now_ms))
        rate.record(1, now_ms)
        return max(wait_ms, _wait_ms(rate, config.listener_integer(listener, _SETTING), now_ms))

    def refuse_ms(self, listener: str, address: str) -> int:
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
            # A refused connection does not count.
            rate.record(-1, now_ms)
            if listener in self._rates_by_listener:
                self._rates_by_listener[listener].record(-1, now_ms)
                if not self._config().is_protected_listener(listener):
                    self._rate.record(-1, now_ms)
        return wait_ms

    def _now_ms(self) -> int:
        # Durations only: the wall clock may jump.
        return self._clock.monotonic_ns() // 1_000_000


def _wait_ms(rate: Rate, limit: float, now_ms: int) -> int:
    # A limit of zero cannot be met.
    return min(rate.throttle_ms(limit, now_ms), WINDOW_MS) if limit > 0 else WINDOW_MS
