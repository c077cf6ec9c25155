"""The requesting side of a connection against peers that do what they should, and what they should not."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.errors import KafkaError, NetworkException, RequestTimedOut
from barnabas.net.requester import Requester
from barnabas.net.transport import connect
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.list_groups_request import ListGroupsRequest
from barnabas.protocol.messages.list_groups_response import ListGroupsResponse
from barnabas.protocol.requests import decode_request, encode_response
from barnabas.testing import free_port

WAIT_S = 30
API = api_for_name("ListGroups")
VERSION = 2

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> Any:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return decode_request(await reader.readexactly(size))


def answer(correlation_id: int, throttle_time_ms: int = 0) -> bytes:
    body = encode_response(
        API, VERSION, correlation_id, ListGroupsResponse(throttle_time_ms=throttle_time_ms)
    )
    return struct.pack(">i", len(body)) + bytes(body)


def run(
    peer: Peer,
    test: Callable[[Requester], Awaitable[None]],
    *,
    on_close: Callable[[Requester], None] = lambda _: None,
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await peer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            requester = Requester(
                await connect("localhost", port, timeout_s=WAIT_S),
                loop=asyncio.get_running_loop(),
                receive_buffer=bytearray(1 << 16),
                client_id="test",
                peer=f"localhost:{port}",
                on_close=on_close,
                max_response_bytes=1_000,
            )
            requester.open()
            try:
                await test(requester)
            finally:
                requester.close()
                server.close()

    asyncio.run(bounded())


async def ask(requester: Requester, timeout_s: float = WAIT_S) -> Any:
    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(message: Any, error: KafkaError | None) -> None:
        assert not told.done(), "a request is answered once"
        if error is None:
            told.set_result(message)
        else:
            told.set_exception(error)

    requester.send(API, VERSION, ListGroupsRequest(), done, timeout_s=timeout_s)
    return await told


def test_requests_sent_ahead_are_answered_in_order_however_the_answers_are_cut() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(20):
            request = await read_request(reader)
            assert request.header.client_id == "test"
            correlation_id = request.header.correlation_id
            for byte in answer(correlation_id, 100 + correlation_id):
                writer.write(bytes([byte]))
                await writer.drain()
        await reader.read()

    async def test(requester: Requester) -> None:
        answers = await asyncio.gather(*(ask(requester) for _ in range(20)))
        assert [each.throttle_time_ms for each in answers] == list(range(100, 120))
        assert requester.in_flight == 0

    run(peer, test)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (answer(7), "came in place of"),
        (answer(0)[:-1], "closed the connection"),
        (struct.pack(">i", -1), "negative"),
        (struct.pack(">i", 2_000) + bytes(10), "at most 1000 bytes"),
        (struct.pack(">i", 3) + bytes(3), "ResponseHeader"),
        (struct.pack(">i", 6) + bytes(6), "ListGroupsResponse"),
        (answer(0) + answer(1), "no request"),
        (b"", "closed the connection"),
    ],
)
def test_what_is_no_answer_ends_the_connection(reply: bytes, says: str) -> None:
    closed = asyncio.Event()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(reply)
        await writer.drain()
        if says != "closed the connection":
            await reader.read()

    async def test(requester: Requester) -> None:
        asked = asyncio.gather(ask(requester), return_exceptions=True)
        await closed.wait()
        assert says in str(requester.closed_by)
        await asked
        with pytest.raises(NetworkException):
            await ask(requester)

    run(peer, test, on_close=lambda _: closed.set())


def test_a_request_that_is_not_answered_in_time_ends_all_that_are_under_way() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def test(requester: Requester) -> None:
        patient = asyncio.ensure_future(ask(requester))
        with pytest.raises(RequestTimedOut, match="ListGroups"):
            await ask(requester, 0.05)
        with pytest.raises(RequestTimedOut):
            await patient

    run(peer, test)


def test_a_request_that_was_given_up_does_not_arrive_later() -> None:
    """The system would send what it has taken for minutes, even after the same request on another connection."""
    ends: list[str] = []

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
            ends.append("end of the stream")
        except ConnectionResetError:
            ends.append("reset")

    async def test(requester: Requester) -> None:
        with pytest.raises(RequestTimedOut):
            await ask(requester, 0.05)
        while not ends:  # noqa: ASYNC110 - nothing tells when the peer has noticed
            await asyncio.sleep(0.001)

    run(peer, test)
    assert ends == ["reset"]


def test_a_request_that_wants_no_answer_is_done_at_once() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        request = await read_request(reader)
        writer.write(answer(request.header.correlation_id, 5))
        await reader.read()

    async def test(requester: Requester) -> None:
        told: list[object] = []
        requester.send(
            API,
            VERSION,
            ListGroupsRequest(),
            lambda message, error: told.append((message, error)),
            timeout_s=WAIT_S,
            expects_response=False,
        )
        assert (await ask(requester)).throttle_time_ms == 5
        assert told == [(None, None)]

    run(peer, test)


def test_a_connection_that_only_sends_is_not_idle() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def test(requester: Requester) -> None:
        requester.last_active_s = -1.0
        assert requester.is_idle_since(0.0)
        sent = asyncio.Event()
        requester.send(
            API,
            VERSION,
            ListGroupsRequest(),
            lambda _message, _error: sent.set(),
            timeout_s=WAIT_S,
            expects_response=False,
        )
        await sent.wait()
        assert not requester.is_idle_since(0.0)

    run(peer, test)


def test_nobody_to_connect_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: object, **others: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def nowhere() -> None:
        with pytest.raises(NetworkException, match="cannot be reached"):
            await connect("127.0.0.1", free_port(), timeout_s=WAIT_S)
        with pytest.raises(NetworkException, match="not known"):
            await connect("x" * 100, 9092, timeout_s=WAIT_S)
        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        with pytest.raises(NetworkException, match="Name or service not known"):
            await connect("elsewhere", 9092, timeout_s=WAIT_S)

    asyncio.run(nowhere())
