"""One request on its way through the broker, and its one response.

A handler gets the exchange and returns an `Answer`: the response, or the `Parked` request that it has handed to the
code that answers it later. There is no third way, so mypy rejects a handler that forgets to answer:

    return HeartbeatResponse()                          the response, now
    return exchange.answer_from(_create(broker, ...))   a coroutine that returns the response
    parked = exchange.park()                            anything that calls back (a coordinator, a delayed operation,
    coordinator.ask(..., parked.answer)                 a turn): the request is in its hands
    return parked

The code that answers later may return an `Answer` again: a coroutine may continue by a callback. A request is answered
exactly once. A second answer, or an exception instead of an answer, ends the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from librt.strings import BytesWriter, write_i32_be

from barnabas.broker.quotas.quotas import REQUEST_PERCENTAGE
from barnabas.broker.quotas.rates import WINDOW_MS
from barnabas.broker.requests.large_responses import encode_and_clear
from barnabas.broker.requests.served_api import ServedApi
from barnabas.broker.requests.session import ClientSession
from barnabas.broker.waiting.background import Background
from barnabas.broker.waiting.turns import AT_ONCE, Turns
from barnabas.errors import NONE, KafkaError
from barnabas.net.connection import Connection
from barnabas.net.outbox import Part
from barnabas.protocol.codec import encode, encode_parts
from barnabas.protocol.message import Message

log = logging.getLogger(__name__)

# The longest throttle for a quota on time: a window of the rate.
MAX_THROTTLE_FOR_TIME_MS: Final = WINDOW_MS

ResponseT = TypeVar("ResponseT", bound=Message)
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Exchange(Generic[ResponseT]):
    """A request and its one response, sent at once or later."""

    __slots__ = (
        "busy_ns",
        "client_id",
        "connection",
        "correlation_id",
        "is_answered",
        "served",
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
        served: ServedApi,
        version: int,
        correlation_id: int,
        client_id: str,
    ) -> None:
        self.connection = connection
        self.session = session
        self.served = served
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.started_ns = served.clock.monotonic_ns()
        self.busy_ns = 0
        self.is_answered = False
        self.waits_on_purpose = False
        # The connection is not read from for this long after the response. The response tells the client.
        self.throttle_ms = 0

    def answer(self, answer: Answer[ResponseT]) -> None:
        """Sends a response. A parked request is answered by the code that has it."""
        if not isinstance(answer, Parked):
            self._respond(answer)
        elif self.busy_ns == 0 and not self.is_answered:
            # The time until now is what the request has cost the event loop.
            self.busy_ns = self.served.clock.monotonic_ns() - self.started_ns

    def park(self, *, on_purpose: bool = True) -> Parked[ResponseT]:
        """Takes the request out of the handler's hands: the code that gets the result answers it.

        A request waits on purpose if there is nothing to do for it, as a fetch waits for records. Other requests that
        wait may be slow, and are logged.
        """
        assert not self.is_answered, "a request is answered once"
        if self.busy_ns == 0:
            self.waits_on_purpose = on_purpose
        return Parked(self)

    def answer_from(self, coming: Coroutine[Any, Any, Answer[ResponseT]]) -> Parked[ResponseT]:
        """Parks the request until a coroutine returns its response. An error ends the connection."""
        parked = self.park(on_purpose=False)
        self.served.tasks.start(parked.answer_from(coming))
        return parked

    def answer_in_turns(
        self,
        turns: Turns,
        items: Sequence[ItemT],
        work: Callable[[ItemT], ResultT],
        finish: Callable[[list[ResultT]], Answer[ResponseT]],
    ) -> Answer[ResponseT]:
        """The result of `finish` for the results of all items: at once if there are few, else in turns.

        The cluster may change between one item and the next.
        """
        if len(items) <= AT_ONCE:
            return finish([work(item) for item in items])
        return self.answer_from(turns.map(items, work, finish))

    async def respond_from(
        self, background: Background, body: ResponseT, elements: list[Any]
    ) -> Parked[ResponseT]:
        """Sends a large response that a thread encodes, so that other requests need not wait for it.

        The thread also removes its elements: to free many objects at once takes long. Only for messages whose codec is
        not compiled: compiled code would hold the interpreter's lock.
        """
        self._complete(body)
        encoded = await background.run(partial(encode_and_clear, body, self.version, elements))
        self._send([self._header(len(encoded)) + encoded])
        return Parked(self)

    def respond_nothing(self) -> Parked[ResponseT]:
        """For requests that want no response (Produce with acks=0). The handler returns the result in its place."""
        parked = self.park()
        self._finish()
        self.connection.reply((), self.throttle_ms / 1_000)
        return parked

    def fail(self, error: Exception) -> None:
        """Ends the connection of a request that failed as a whole. The requests before it have been answered."""
        self.is_answered = True
        self.served.metrics.errors.value += 1
        name = self.served.api.name
        if isinstance(error, KafkaError):
            self.connection.fail(f"{name}: {error.name}: {error}")
            return
        log.error("connection from %s closed: %s failed", self.connection.peer, name, exc_info=error)
        self.connection.fail(None)

    def throttle(self, duration_ms: int) -> None:
        """Mutes the connection after the response. Of several reasons the longest counts."""
        self.throttle_ms = max(self.throttle_ms, duration_ms)

    def _throttle_for_time(self) -> None:
        """Charges the time that the request has taken to the client's share of the event loop, without waiting."""
        served = self.served
        if served.quotas.has(REQUEST_PERCENTAGE) and not served.is_of_brokers:
            if self.busy_ns == 0:
                self.busy_ns = served.clock.monotonic_ns() - self.started_ns
            percent_seconds = self.busy_ns * 100 / 1e9
            self.throttle(
                min(
                    served.quotas.record(
                        REQUEST_PERCENTAGE,
                        self.session.user,
                        self.client_id,
                        percent_seconds,
                        served.clock.now_ms(),
                    ),
                    MAX_THROTTLE_FOR_TIME_MS,
                )
            )

    def _complete(self, body: ResponseT) -> None:
        served = self.served
        if served.has_error_code and getattr(body, "error_code", NONE) != NONE:
            served.metrics.errors.value += 1
        self._throttle_for_time()
        if self.throttle_ms and hasattr(body, "throttle_time_ms"):
            body.throttle_time_ms = self.throttle_ms

    def _respond(self, body: ResponseT) -> None:
        self._complete(body)
        if self.served.has_records:
            parts = encode_parts(body, self.version)
            self._send([self._header(sum(map(len, parts))), *parts])
        else:
            encoded = encode(body, self.version)
            self._send([self._header(len(encoded)) + encoded])

    def _send(self, parts: Sequence[Part]) -> None:
        metrics = self.served.metrics
        for part in parts:
            metrics.response_bytes.value += len(part)
        self._finish()
        self.connection.reply(parts, self.throttle_ms / 1_000)

    def _finish(self) -> None:
        assert not self.is_answered, "a request is answered once"
        self.is_answered = True
        metrics = self.served.metrics
        elapsed_ns = self.served.clock.monotonic_ns() - self.started_ns
        metrics.times_s.observe(elapsed_ns / 1e9)
        if elapsed_ns > metrics.slow_ns:
            self._log_if_slow(elapsed_ns)

    def _log_if_slow(self, elapsed_ns: int) -> None:
        busy_ns = self.busy_ns or elapsed_ns
        if self.waits_on_purpose and busy_ns <= self.served.metrics.slow_ns:
            return
        elapsed_ms, busy_ms = elapsed_ns // 1_000_000, busy_ns // 1_000_000
        log.warning(
            "Slow request: %s version %d of client %s at %s took %d ms: %d ms on the event loop, %d ms waiting;"
            " then throttled for %d ms",
            self.served.api.name,
            self.version,
            self.client_id or "without an id",
            self.connection.peer,
            elapsed_ms,
            busy_ms,
            elapsed_ms - busy_ms,
            self.throttle_ms,
            extra={
                "api": self.served.api.name,
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
        has_tags = self.served.api.response_header_version(self.version) > 0
        out = BytesWriter()
        write_i32_be(out, (5 if has_tags else 4) + body_bytes)
        write_i32_be(out, self.correlation_id)
        if has_tags:
            out.append(0)
        return out.getvalue()


class Parked(Generic[ResponseT]):
    """A request that is answered later: its handler returns it, and other code answers it.

    No method raises: the code that answers works for other requests too.
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange[ResponseT]) -> None:
        self._exchange = exchange

    def answer(self, answer: Answer[ResponseT]) -> None:
        try:
            self._exchange.answer(answer)
        except Exception as error:
            self._exchange.fail(error)

    def answer_with(self, work: Callable[[], Answer[ResponseT]]) -> None:
        """Continues with work that returns the response, or parks the request again."""
        try:
            self._exchange.answer(work())
        except Exception as error:
            self._exchange.fail(error)

    async def answer_from(self, coming: Coroutine[Any, Any, Answer[ResponseT]]) -> None:
        try:
            self._exchange.answer(await coming)
        except Exception as error:
            self._exchange.fail(error)


Answer: TypeAlias = ResponseT | Parked[ResponseT]
"""The result of a handler: the response, or the parked request."""

AnyExchange: TypeAlias = Exchange[Any]
"""For code that looks at a request and does not answer it."""
