"""Connections over real sockets: order, back-pressure, files, faults."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from barnabas.errors import InvalidRequest
from barnabas.net.channel import Channel
from barnabas.net.connection import Connection, FrameHandler
from barnabas.net.listener import ConnectionLimits, Connections, Listener
from barnabas.net.transport import (
    Accepted,
    Acceptor,
    CannotListen,
    ListenOptions,
    SocketTransport,
    Transport,
)
from barnabas.primitives.file_slice import FileSlice, OpenFile
from tests.net.plain_file import PlainFile
from tests.waiting import wait_until_async

WAIT_S = 30


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(connection: Connection, request: bytes) -> None:
    connection.reply([frame(request)])


@contextlib.asynccontextmanager
async def serving(
    handler: FrameHandler, limits: ConnectionLimits | None = None, transport: Transport | None = None
) -> AsyncIterator[tuple[Connections, Listener]]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as executor:
        connections = Connections(
            loop, executor, limits or ConnectionLimits(), transport or SocketTransport()
        )
        try:
            listener = connections.bind("127.0.0.1", 0)
            listener.open(handler)
            yield connections, listener
        finally:
            connections.close()


async def connect(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", listener.port, limit=1 << 26)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await test()

    asyncio.run(bounded())


async def closing(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
    for writer in writers:
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def is_not_read_from(connection: Connection) -> bool:
    return not connection._is_reading


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def test() -> None:
        async with serving(echo) as (_, listener):
            reader, writer = await connect(listener)
            requests = [bytes([number % 251]) * (number * 7 % 3_000) for number in range(2_000)]
            writer.write(b"".join(map(frame, requests)))
            assert [await read_frame(reader) for _ in requests] == requests
            await closing(writer)

    run(test)


class StutteringChannel:
    """A socket to which nothing can be sent every other time, and a moment later it can."""

    def __init__(self, plain: Channel) -> None:
        self._plain = plain
        self._sends = 0
        self.fileno = self._plain.fileno
        self.receive = self._plain.receive
        self.receive_into = self._plain.receive_into
        self.has_ended = self._plain.has_ended
        self.send_file = self._plain.send_file
        self.close = self._plain.close
        self.abort = self._plain.abort

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more_follows: bool) -> int:
        self._sends += 1
        if self._sends % 2:
            raise BlockingIOError
        return self._plain.send(parts, more_follows=more_follows)


class StutteringAcceptor:
    def __init__(self, acceptor: Acceptor) -> None:
        self._acceptor = acceptor
        self.port = acceptor.port
        self.fileno = acceptor.fileno
        self.close = acceptor.close

    def accept(self) -> Accepted:
        accepted = self._acceptor.accept()
        return accepted._replace(channel=StutteringChannel(accepted.channel))


class StutteringTransport(SocketTransport):
    def listen(self, host: str, port: int, options: ListenOptions) -> Acceptor:
        return StutteringAcceptor(super().listen(host, port, options))


def test_requests_sent_ahead_do_not_wait_for_more_when_writing_had_to_wait() -> None:
    async def test() -> None:
        async with serving(echo, transport=StutteringTransport()) as (_, listener):
            reader, writer = await connect(listener)
            requests = [b"%d" % number for number in range(5)]
            writer.write(b"".join(map(frame, requests)))
            assert [await read_frame(reader) for _ in requests] == requests
            await closing(writer)

    run(test)


@pytest.mark.slow
@pytest.mark.parametrize("size", [70_000, 300_000, 5_000_000])
def test_large_requests_and_replies(size: int) -> None:
    async def test() -> None:
        async with serving(echo) as (_, listener):
            reader, writer = await connect(listener)
            request = os.urandom(size)
            for _ in range(3):
                writer.write(frame(request))
            for _ in range(3):
                assert await read_frame(reader) == request
            await closing(writer)

    run(test)


def test_one_request_at_a_time_and_later_replies() -> None:
    async def test() -> None:
        waiting: list[tuple[Connection, bytes]] = []

        def park(connection: Connection, request: bytes) -> None:
            waiting.append((connection, request))

        async with serving(park) as (_, listener):
            reader, writer = await connect(listener)
            writer.write(frame(b"one") + frame(b"two") + frame(b"three"))
            for expected in (b"one", b"two", b"three"):
                await wait_until_async(lambda: bool(waiting))
                [(connection, request)] = waiting
                assert request == expected
                waiting.clear()
                connection.reply([frame(request)])
                assert await read_frame(reader) == expected
            await closing(writer)

    run(test)


def test_a_request_without_an_answer_does_not_hold_up_the_next() -> None:
    async def test() -> None:
        def handle(connection: Connection, request: bytes) -> None:
            if request == b"quiet":
                connection.reply()
            else:
                connection.reply([frame(request)])

        async with serving(handle) as (_, listener):
            reader, writer = await connect(listener)
            writer.write(frame(b"quiet") * 3 + frame(b"loud"))
            assert await read_frame(reader) == b"loud"
            await closing(writer)

    run(test)


@pytest.mark.slow
def test_a_client_that_does_not_read_is_not_read_from() -> None:
    async def test() -> None:
        handled = 0
        pending = 0

        def answer_at_length(connection: Connection, _: bytes) -> None:
            nonlocal handled, pending
            handled += 1
            connection.reply([frame(bytes(100_000))])
            pending = max(pending, connection.pending_bytes)

        async with serving(answer_at_length) as (_, listener):
            client = socket.create_connection(("127.0.0.1", listener.port))
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            requests = frame(b"x" * 100) * 2_000
            sending = asyncio.ensure_future(loop.sock_sendall(client, requests))
            before = -1
            while handled != before:
                before = handled
                for _ in range(50):
                    await asyncio.sleep(0.002)
            assert handled < 2_000
            assert pending < 1 << 20
            received = 0
            while received < 2_000 * 100_004:
                received += len(await loop.sock_recv(client, 1 << 20))
            await sending
            assert handled == 2_000
            client.close()

    run(test)


@pytest.mark.slow
def test_a_slice_of_a_file_goes_out_between_bytes(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    content = os.urandom(9_000_000)
    path.write_bytes(content)

    async def test() -> None:
        def send_slice(connection: Connection, request: bytes) -> None:
            position, size = struct.unpack(">ii", request)
            part = FileSlice(PlainFile(path), position, size)
            connection.reply([struct.pack(">i", size + 2) + b"<", part, b">"])

        async with serving(send_slice) as (_, listener):
            reader, writer = await connect(listener)
            for position, size in [(0, 9_000_000), (17, 1), (4_000_000, 0), (5, 8_000_000)]:
                writer.write(frame(struct.pack(">ii", position, size)))
                assert await read_frame(reader) == b"<" + content[position : position + size] + b">"
            await closing(writer)

    run(test)


class ColdTransport(SocketTransport):
    """No range of a file is in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.probed: list[tuple[int, int]] = []

    def is_cached(self, file: OpenFile, position: int, count: int) -> bool:
        self.probed.append((position, count))
        return False


def test_cold_parts_of_a_file_are_read_off_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    content = os.urandom(3_000_000)
    path.write_bytes(content)

    async def test() -> None:
        def send_slice(connection: Connection, _: bytes) -> None:
            connection.reply([struct.pack(">i", len(content)), FileSlice(PlainFile(path), 0, len(content))])

        transport = ColdTransport()
        async with serving(send_slice, transport=transport) as (_, listener):
            reader, writer = await connect(listener)
            writer.write(frame(b"fetch"))
            assert await read_frame(reader) == content
            assert len(transport.probed) >= 3
            await closing(writer)

    run(test)


def test_a_file_that_is_cut_while_it_is_sent_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(1_000))

    async def test() -> None:
        def send_slice(connection: Connection, _: bytes) -> None:
            file = PlainFile(path)
            os.ftruncate(file.fileno(), 400)
            connection.reply([struct.pack(">i", 1_000), FileSlice(file, 0, 1_000)])

        async with serving(send_slice) as (_, listener):
            reader, writer = await connect(listener)
            writer.write(frame(b"fetch"))
            assert len(await reader.read(-1)) == 404
            await closing(writer)

    run(test)
    assert "truncated" in caplog.text


@pytest.mark.parametrize("fault", [InvalidRequest("no such thing"), RuntimeError("a bug")])
def test_a_request_that_fails_closes_its_connection_and_no_other(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        def handle(connection: Connection, request: bytes) -> None:
            if request == b"bad":
                raise fault
            connection.reply([frame(request)])

        async with serving(handle) as (connections, listener):
            good_reader, good_writer = await connect(listener)
            bad_reader, bad_writer = await connect(listener)
            bad_writer.write(frame(b"good") + frame(b"bad") + frame(b"never seen"))
            assert await bad_reader.read(-1) == frame(b"good")
            good_writer.write(frame(b"still here"))
            assert await read_frame(good_reader) == b"still here"
            assert len(connections) == 1
            await closing(good_writer, bad_writer)

    run(test)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    assert "127.0.0.1:" in caplog.text


@pytest.mark.parametrize("size", [-1, 1_000_001, 2**31 - 1])
def test_a_size_out_of_bounds_ends_the_connection_with_one_line(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(echo, ConnectionLimits(socket_request_max_bytes=1_000_000)) as (_, listener):
            reader, writer = await connect(listener)
            writer.write(frame(b"fine") + struct.pack(">i", size) + b"garbage")
            assert await reader.read(-1) == frame(b"fine")
            await closing(writer)

    run(test)
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert str(size) in record.getMessage()


def test_a_throttled_connection_is_answered_but_not_read_from() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        handled_s: list[float] = []

        def handle(connection: Connection, request: bytes) -> None:
            handled_s.append(loop.time())
            connection.reply([frame(request)], delay_s=0.05)

        async with serving(handle) as (_, listener):
            reader, writer = await connect(listener)
            writer.write(frame(b"one") + frame(b"two"))
            assert await read_frame(reader) == b"one"
            assert await read_frame(reader) == b"two"
            assert handled_s[1] - handled_s[0] >= 0.05
            await closing(writer)

    run(test)


def test_bounds_on_connections() -> None:
    async def test() -> None:
        async with serving(echo, ConnectionLimits(max_connections=2)) as (connections, listener):
            first, second, third = [await connect(listener) for _ in range(3)]
            third[1].write(frame(b"wait"))
            for reader, writer in (first, second):
                writer.write(frame(b"served"))
                assert await read_frame(reader) == b"served"
            assert len(connections) == 2
            await closing(first[1])
            assert await read_frame(third[0]) == b"wait"
            await closing(second[1], third[1])

    run(test)


def test_bounds_on_connections_of_one_address(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        limits = ConnectionLimits(max_connections_per_ip=9, max_connections_per_ip_overrides={"127.0.0.1": 1})
        async with serving(echo, limits) as (connections, listener):
            first = await connect(listener)
            first[1].write(frame(b"served"))
            assert await read_frame(first[0]) == b"served"
            second = await connect(listener)
            assert await second[0].read(-1) == b""
            assert (connections.accepted, connections.refused) == (1, 1)
            await closing(first[1], second[1])

    run(test)
    assert "refused" in caplog.text


def test_idle_connections_are_closed_and_those_that_wait_for_us_are_not() -> None:
    async def test() -> None:
        parked: list[Connection] = []

        async with serving(
            lambda connection, _: parked.append(connection), ConnectionLimits(connections_max_idle_ms=40)
        ) as (connections, listener):
            idle_reader, idle_writer = await connect(listener)
            reader, writer = await connect(listener)
            writer.write(frame(b"park me"))
            await wait_until_async(lambda: bool(parked))
            assert await idle_reader.read(-1) == b""
            await wait_until_async(lambda: len(connections) == 1)
            parked[0].reply([frame(b"still here")])
            assert await read_frame(reader) == b"still here"
            await closing(idle_writer, writer)

    run(test)


def test_a_handler_is_told_when_the_peer_of_a_waiting_request_hangs_up() -> None:
    async def test() -> None:
        parked: list[Connection] = []
        hung_up: list[str] = []

        def park(connection: Connection, request: bytes) -> None:
            connection.on_hang_up = lambda: hung_up.append(request.decode())
            parked.append(connection)

        async with serving(park) as (connections, listener):
            for how in ("answered", "closed", "ends", "sends ahead", "reset"):
                reader, writer = await connect(listener)
                writer.write(frame(how.encode()))
                await wait_until_async(lambda: bool(parked))
                connection = parked.pop()
                if how == "answered":
                    connection.reply([frame(b"in time")])
                    assert await read_frame(reader) == b"in time"
                elif how == "closed":
                    connection.close()
                    assert hung_up.pop() == how
                elif how == "ends":
                    writer.write_eof()
                    await wait_until_async(lambda: bool(hung_up))
                    assert hung_up.pop() == how
                    connection.reply([frame(b"at once")])
                    assert await read_frame(reader) == b"at once"
                    assert await reader.read(-1) == b""
                elif how == "sends ahead":
                    writer.write(frame(b"more"))
                    await wait_until_async(partial(is_not_read_from, connection))
                    assert not hung_up
                    connection.close()
                    assert hung_up.pop() == how
                else:
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.close()
                    await wait_until_async(lambda: bool(hung_up))
                    assert hung_up.pop() == how
                    connection.reply([frame(b"to nobody")])
                await closing(writer)
                await wait_until_async(lambda: len(connections) == 0)
                assert not hung_up

    run(test)


def test_a_reply_to_a_connection_that_is_gone_is_dropped() -> None:
    async def test() -> None:
        parked: list[Connection] = []
        async with serving(lambda connection, _: parked.append(connection)) as (connections, listener):
            _, writer = await connect(listener)
            writer.write(frame(b"park me"))
            await wait_until_async(lambda: bool(parked))
            parked[0].close()
            parked[0].reply([frame(b"too late")])
            assert len(connections) == 0
            await closing(writer)

    run(test)


def test_an_address_that_is_taken_says_what_to_do() -> None:
    async def test() -> None:
        async with serving(echo) as (connections, listener):
            with pytest.raises(CannotListen, match="another process listens there"):
                connections.bind("127.0.0.1", listener.port)
            with pytest.raises(CannotListen, match="no such address"):
                connections.bind("192.0.2.1", 0)

    run(test)
