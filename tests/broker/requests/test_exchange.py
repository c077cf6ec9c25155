"""A request is answered once: by its handler, or by what it was handed to. Over a real connection."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest

from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.exchange import Answer, Exchange, Parked
from barnabas.broker.requests.served_api import ApiMetrics, ServedApi
from barnabas.broker.requests.session import ClientSession
from barnabas.broker.waiting.tasks import Tasks
from barnabas.broker.waiting.turns import AT_ONCE, Turns
from barnabas.clock import ManualClock, SystemClock
from barnabas.errors import CoordinatorNotAvailable
from barnabas.metrics.instruments import Counter, Histogram
from barnabas.net.connection import Connection
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.heartbeat_response import HeartbeatResponse
from tests.net.test_connection import closing, connect, frame, read_frame, run, serving

VERSION = 3
CORRELATION_ID = 7

Exchanged = Exchange[HeartbeatResponse]
Handle = Callable[[Exchanged], Answer[HeartbeatResponse]]


class Served:
    """An API whose requests go to a function, as dispatch hands them over."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.clock = ManualClock()
        self.metrics = ApiMetrics(
            Counter(), Counter(), Histogram((1.0,)), Counter(), Histogram((1.0,)), 1_000_000_000
        )
        self.tasks = Tasks()
        api = api_for_name("Heartbeat")
        self._served = ServedApi(api, self.metrics, self.clock, Quotas(), self.tasks)
        self.exchanges: list[Exchanged] = []

    def __call__(self, connection: Connection, request: bytes) -> None:
        session = ClientSession(listener="PLAINTEXT", host="127.0.0.1")
        exchange: Exchanged = Exchange(connection, session, self._served, VERSION, CORRELATION_ID, "client")
        self.exchanges.append(exchange)
        try:
            exchange.answer(self._handle(exchange))
        except Exception as error:
            exchange.fail(error)

    async def ask(self) -> HeartbeatResponse | None:
        """The response to one request; None if the connection ends instead."""
        async with serving(self) as (_, listener):
            reader, writer = await connect(listener)
            writer.write(frame(b"request"))
            try:
                response = await read_frame(reader)
            except asyncio.IncompleteReadError:
                return None
            finally:
                await closing(writer)
                await self.tasks.stop()
        (correlation_id,) = struct.unpack_from(">i", response)
        assert correlation_id == CORRELATION_ID
        return decode(HeartbeatResponse, response, VERSION, 4)


def asked(handle: Handle) -> tuple[HeartbeatResponse | None, Served]:
    responses: list[HeartbeatResponse | None] = []
    made: list[Served] = []

    async def test() -> None:
        made.append(Served(handle))
        responses.append(await made[0].ask())

    run(test)
    return responses[0], made[0]


def test_a_response_is_sent_at_once() -> None:
    response, served = asked(lambda _: HeartbeatResponse(error_code=27))
    assert response == HeartbeatResponse(error_code=27)
    assert served.exchanges[0].is_answered
    assert served.metrics.times_s.count == 1


def later(
    exchange: Exchanged, answer: Callable[[Parked[HeartbeatResponse]], object]
) -> Parked[HeartbeatResponse]:
    parked = exchange.park()
    asyncio.get_running_loop().call_soon(answer, parked)
    return parked


def test_a_parked_request_is_answered_by_a_callback() -> None:
    response, _ = asked(lambda exchange: later(exchange, lambda parked: parked.answer(HeartbeatResponse())))
    assert response == HeartbeatResponse()


def test_a_callback_may_answer_before_the_handler_returns() -> None:
    def handle(exchange: Exchanged) -> Answer[HeartbeatResponse]:
        parked = exchange.park()
        parked.answer(HeartbeatResponse())
        return parked

    response, served = asked(handle)
    assert response == HeartbeatResponse()
    assert served.metrics.times_s.count == 1


def test_a_coroutine_answers_or_hands_the_request_on() -> None:
    async def answer() -> Answer[HeartbeatResponse]:
        await asyncio.sleep(0)
        return HeartbeatResponse(error_code=1)

    async def hand_on(exchange: Exchanged) -> Answer[HeartbeatResponse]:
        await asyncio.sleep(0)
        return later(exchange, lambda parked: parked.answer(HeartbeatResponse(error_code=2)))

    assert asked(lambda exchange: exchange.answer_from(answer()))[0] == HeartbeatResponse(error_code=1)
    response, _ = asked(lambda exchange: exchange.answer_from(hand_on(exchange)))
    assert response == HeartbeatResponse(error_code=2)


def test_the_time_on_the_loop_ends_where_the_waiting_begins() -> None:
    made: list[Served] = []

    def handle(exchange: Exchanged) -> Answer[HeartbeatResponse]:
        made[0].clock.advance_ms(3)

        def answer(parked: Parked[HeartbeatResponse]) -> None:
            made[0].clock.advance_ms(500)
            parked.answer(HeartbeatResponse())

        return later(exchange, answer)

    async def test() -> None:
        made.append(Served(handle))
        assert await made[0].ask() == HeartbeatResponse()

    run(test)
    assert made[0].exchanges[0].busy_ns == 3_000_000
    assert made[0].exchanges[0].waits_on_purpose


@pytest.mark.parametrize("how", ["coroutine", "work", "callback"])
def test_an_exception_in_the_place_of_an_answer_ends_the_connection(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> HeartbeatResponse:
        raise ValueError("broken")

    async def fail_later() -> HeartbeatResponse:
        await asyncio.sleep(0)
        return fail()

    def handle(exchange: Exchanged) -> Answer[HeartbeatResponse]:
        if how == "coroutine":
            return exchange.answer_from(fail_later())
        if how == "work":
            return later(exchange, lambda parked: parked.answer_with(fail))
        # It cannot be encoded.
        return later(exchange, lambda parked: parked.answer(HeartbeatResponse(error_code=1 << 20)))

    response, served = asked(handle)
    assert response is None
    assert served.metrics.errors.value == 1
    assert (
        "Heartbeat failed" if how != "callback" else "HeartbeatResponse v3: field errorCode"
    ) in caplog.text


def test_an_error_of_kafka_is_named_when_it_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> HeartbeatResponse:
        raise CoordinatorNotAvailable("not now")

    response, _ = asked(lambda exchange: later(exchange, lambda parked: parked.answer_with(fail)))
    assert response is None
    assert "Heartbeat: COORDINATOR_NOT_AVAILABLE: not now" in caplog.text


def test_a_second_answer_is_not_taken_for_the_one_to_the_next_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    parked: list[Parked[HeartbeatResponse]] = []

    def handle(exchange: Exchanged) -> Answer[HeartbeatResponse]:
        if not parked:
            parked.append(exchange.park())
            asyncio.get_running_loop().call_soon(parked[0].answer, HeartbeatResponse(error_code=1))
            return parked[0]
        # The next request waits for its own answer, and the first one is answered again.
        return later(exchange, lambda _: parked[0].answer(HeartbeatResponse(error_code=2)))

    async def test() -> None:
        async with serving(Served(handle)) as (_, listener):
            reader, writer = await connect(listener)
            writer.write(frame(b"first") + frame(b"second"))
            await read_frame(reader)
            assert await reader.read() == b""
            await closing(writer)

    run(test)
    assert "a request is answered once" in caplog.text


def test_a_request_that_was_answered_cannot_be_parked() -> None:
    def handle(exchange: Exchanged) -> Answer[HeartbeatResponse]:
        exchange.answer(HeartbeatResponse())
        with pytest.raises(AssertionError, match="answered once"):
            exchange.park()
        return exchange_parked[0]

    exchange_parked: list[Parked[HeartbeatResponse]] = []

    def park_first(exchange: Exchanged) -> Answer[HeartbeatResponse]:
        exchange_parked.append(exchange.park())
        return handle(exchange)

    assert asked(park_first)[0] == HeartbeatResponse()


@pytest.mark.parametrize("count", [AT_ONCE, AT_ONCE + 1])
def test_few_items_are_done_at_once_and_many_in_turns(count: int) -> None:
    def handle(exchange: Exchanged) -> Answer[HeartbeatResponse]:
        turns = Turns(asyncio.get_running_loop(), SystemClock())
        answer = exchange.answer_in_turns(
            turns,
            range(count),
            lambda item: item,
            lambda results: HeartbeatResponse(error_code=len(results)),
        )
        assert isinstance(answer, Parked) == (count > AT_ONCE)
        return answer

    assert asked(handle)[0] == HeartbeatResponse(error_code=count)
