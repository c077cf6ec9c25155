"""One request on its way through the broker: who asked, and how the answer goes back."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Final

from librt.strings import BytesWriter, write_i32_be

from barnabas.broker.quotas.quotas import REQUEST_PERCENTAGE, Quotas
from barnabas.broker.quotas.rates import WINDOW_MS
from barnabas.clock import Clock
from barnabas.errors import NONE, KafkaError
from barnabas.metrics.instruments import Counter, Histogram
from barnabas.net.connection import Connection
from barnabas.net.outbox import Part
from barnabas.protocol.apis import Api
from barnabas.protocol.codec import encode
from barnabas.protocol.message import Message

log = logging.getLogger(__name__)

# What a client has had the worker process do counts half as much after so long.
WORKER_HALF_LIFE_NS: Final = 10_000_000_000
# What a quota on time can cost at once: a window of the rate.
MAX_THROTTLE_FOR_TIME_MS: Final = WINDOW_MS


class ClientSession:
    """What is known of the client behind a connection. Security fills in who it is."""

    __slots__ = (
        "_worker_ns",
        "_worker_used_ns",
        "client_software_name",
        "client_software_version",
        "host",
        "last_job_ns",
        "listener",
        "user",
    )

    def __init__(self, *, listener: str, host: str) -> None:
        self.listener = listener
        self.host = host
        self.user = "ANONYMOUS"
        self.client_software_name = ""
        self.client_software_version = ""
        # What the worker process has done for this connection, and when that was counted.
        self.last_job_ns = 0
        self._worker_used_ns = 0.0
        self._worker_ns = 0

    def worker_used_ns(self, now_ns: int) -> float:
        """How long the worker process has worked for this connection, of late."""
        if not self._worker_used_ns:
            return 0.0
        half_lives = (now_ns - self._worker_ns) / WORKER_HALF_LIFE_NS
        return self._worker_used_ns * math.pow(0.5, half_lives)

    def use_worker(self, duration_ns: int, now_ns: int) -> None:
        self._worker_used_ns = self.worker_used_ns(now_ns) + duration_ns
        self._worker_ns = now_ns
        self.last_job_ns = duration_ns


class ApiMetrics:
    """What is counted for each API."""

    __slots__ = (
        "errors",
        "request_bytes",
        "requests",
        "response_bytes",
        "slow_ns",
        "tells_error",
        "times_s",
    )

    def __init__(
        self,
        requests: Counter,
        errors: Counter,
        request_bytes: Histogram,
        response_bytes: Counter,
        times_s: Histogram,
        slow_ns: int,
    ) -> None:
        self.requests = requests
        self.errors = errors
        self.request_bytes = request_bytes
        self.response_bytes = response_bytes
        self.times_s = times_s
        # A request that takes longer is logged.
        self.slow_ns = slow_ns
        # Whether an answer has an error of the whole request: known once the type of the answer is loaded.
        self.tells_error = False


class Exchange:
    """A request and its one answer, given at once or later."""

    __slots__ = (
        "api",
        "busy_ns",
        "client_id",
        "clock",
        "connection",
        "correlation_id",
        "metrics",
        "quotas",
        "session",
        "started_ns",
        "throttle_ms",
        "version",
        "waits_on_purpose",
    )

    def __init__(
        self,
        connection: Connection,
        session: ClientSession,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str,
        metrics: ApiMetrics,
        clock: Clock,
        quotas: Quotas,
    ) -> None:
        self.connection = connection
        self.session = session
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.metrics = metrics
        self.clock = clock
        self.quotas = quotas
        self.started_ns = clock.monotonic_ns()
        self.busy_ns = 0
        self.waits_on_purpose = False
        # For so long the connection is not read from after the answer; handlers put it into the answer too.
        self.throttle_ms = 0

    def park(self, on_purpose: bool) -> None:
        """The answer comes later: what has passed until now is what the request has cost the loop.

        A request may wait on purpose, as a fetch does for records; otherwise something is done for it meanwhile.
        """
        self.busy_ns = self.clock.monotonic_ns() - self.started_ns
        self.waits_on_purpose = on_purpose

    def throttle(self, duration_ms: int) -> None:
        """Has the client be quiet after the answer; of several reasons the longest counts."""
        self.throttle_ms = max(self.throttle_ms, duration_ms)

    def throttle_for_time(self) -> None:
        """Charges the time that the request has taken to the client's share of the event loop, waiting left out."""
        if self.quotas.has(REQUEST_PERCENTAGE):
            if self.busy_ns == 0:
                self.busy_ns = self.clock.monotonic_ns() - self.started_ns
            percent_seconds = self.busy_ns * 100 / 1e9
            self.throttle(
                min(
                    self.quotas.record(
                        REQUEST_PERCENTAGE,
                        self.session.user,
                        self.client_id,
                        percent_seconds,
                        self.clock.now_ms(),
                    ),
                    MAX_THROTTLE_FOR_TIME_MS,
                )
            )

    def respond(self, body: Message) -> None:
        if self.metrics.tells_error and getattr(body, "error_code", NONE) != NONE:
            self.metrics.errors.value += 1
        self.throttle_for_time()
        if self.throttle_ms and hasattr(body, "throttle_time_ms"):
            body.throttle_time_ms = self.throttle_ms
        encoded = encode(body, self.version)
        self.respond_parts([self._header(len(encoded)) + encoded])

    def respond_with_header(self, parts: Sequence[Part]) -> None:
        """Answers with parts that are the body, some of them slices of files."""
        self.respond_parts([self._header(sum(map(len, parts))), *parts])

    def respond_parts(self, parts: Sequence[Part]) -> None:
        metrics = self.metrics
        for part in parts:
            metrics.response_bytes.value += len(part)
        self._finish()
        self.connection.reply(parts, self.throttle_ms / 1_000)

    def respond_nothing(self) -> None:
        """For requests that want no answer (Produce with acks=0)."""
        self._finish()
        self.connection.reply((), self.throttle_ms / 1_000)

    def fail(self, error: Exception) -> None:
        """Ends the connection of a request that failed as a whole, after the requests before it were answered."""
        self.metrics.errors.value += 1
        if isinstance(error, KafkaError):
            self.connection.fail(f"{self.api.name}: {error.name}: {error}")
            return
        log.error("connection from %s closed: %s failed", self.connection.peer, self.api.name, exc_info=error)
        self.connection.fail(None)

    def _finish(self) -> None:
        elapsed_ns = self.clock.monotonic_ns() - self.started_ns
        self.metrics.times_s.observe(elapsed_ns / 1e9)
        if elapsed_ns > self.metrics.slow_ns:
            self._log_if_slow(elapsed_ns)

    def _log_if_slow(self, elapsed_ns: int) -> None:
        busy_ns = self.busy_ns or elapsed_ns
        if self.waits_on_purpose and busy_ns <= self.metrics.slow_ns:
            return
        elapsed_ms, busy_ms = elapsed_ns // 1_000_000, busy_ns // 1_000_000
        log.warning(
            "Slow request: %s version %d of client %s at %s took %d ms: %d ms on the event loop, %d ms waiting;"
            " then throttled for %d ms",
            self.api.name,
            self.version,
            self.client_id or "without an id",
            self.connection.peer,
            elapsed_ms,
            busy_ms,
            elapsed_ms - busy_ms,
            self.throttle_ms,
            extra={
                "api": self.api.name,
                "client_id": self.client_id,
                "peer": self.connection.peer,
                "total_ms": elapsed_ms,
                "loop_ms": busy_ms,
                "waiting_ms": elapsed_ms - busy_ms,
                "throttle_ms": self.throttle_ms,
            },
        )

    def _header(self, body_bytes: int) -> bytes:
        """Size, correlation id and, from version 1 on, no tagged fields."""
        has_tags = self.api.response_header_version(self.version) > 0
        out = BytesWriter()
        write_i32_be(out, (5 if has_tags else 4) + body_bytes)
        write_i32_be(out, self.correlation_id)
        if has_tags:
            out.append(0)
        return out.getvalue()
