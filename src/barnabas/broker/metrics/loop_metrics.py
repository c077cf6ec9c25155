"""How busy the event loop is: its delay for a timer, and the share of idle time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from barnabas.metrics.registry import Registry
from barnabas.net.busy_poll import BrokerEventLoop

INTERVAL_S: Final = 1.0
# The idle ratio is that of the last minute, like Kafka's one-minute rate.
WINDOW: Final = 60


class LoopMetrics:
    """Measures once a second, as long as the loop runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Registry) -> None:
        self._loop = loop
        self._lag_s = metrics.histogram(
            "barnabas_eventloop_lag_seconds", "How late the event loop was for a timer."
        ).labels()
        # The loop's time and idle time at the last measurement.
        self._seen: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        if isinstance(loop, BrokerEventLoop):
            metrics.total(
                "barnabas_eventloop_idle_seconds_total",
                "Time that the event loop has waited for something to do.",
                lambda: loop.idle_s,
            )
            for name in (
                "barnabas_eventloop_idle_ratio",
                # Kafka's name: here the loop is what handles requests.
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
            ):
                metrics.gauge(
                    name,
                    "The share of the last minute in which the event loop had nothing to do, from 0 to 1.",
                    self.idle_ratio,
                )
            self._seen.append((loop.time(), loop.idle_s))
        self._measure_next()

    def idle_ratio(self) -> float:
        assert isinstance(self._loop, BrokerEventLoop)
        since_s, idle_before_s = self._seen[0]
        elapsed_s = self._loop.time() - since_s
        if elapsed_s <= 0.0:
            return 1.0
        return min((self._loop.idle_s - idle_before_s) / elapsed_s, 1.0)

    def _measure_next(self) -> None:
        due_s = self._loop.time() + INTERVAL_S
        self._loop.call_at(due_s, self._measure, due_s)

    def _measure(self, due_s: float) -> None:
        now_s = self._loop.time()
        self._lag_s.observe(max(now_s - due_s, 0.0))
        if isinstance(self._loop, BrokerEventLoop):
            self._seen.append((now_s, self._loop.idle_s))
        self._measure_next()
