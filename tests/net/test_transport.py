"""The connections that a broker opens to others."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from barnabas.net.channel import PlainChannel
from barnabas.net.transport import (
    NEARBY_SEND_BYTES,
    SYSTEM_DEFAULT,
    ListenOptions,
    SocketTransport,
    connect,
)

# More than the systems of both sides take while nobody reads.
PIECE = bytes(1 << 20)
RECEIVED_BYTES = 64 << 10


@pytest.mark.parametrize("discards", [True, False])
def test_what_is_not_sent_yet_when_a_connection_ends(discards: bool) -> None:
    """A request that was given up must not arrive after newer ones of the next connection."""
    with socket.socket() as listening:
        # A small buffer, so that much of what was sent waits on the sending side.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]

        async def send() -> int:
            if discards:
                channel = await SocketTransport().connect("127.0.0.1", port, timeout_s=10)
            else:
                channel = await connect("127.0.0.1", port, timeout_s=10, send_buffer_bytes=SYSTEM_DEFAULT)
            sent = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    sent += channel.send([PIECE], more_follows=False)
            channel.close()
            return sent

        sent = asyncio.run(send())
        received = 0
        accepted, _ = listening.accept()
        with accepted:
            accepted.settimeout(10)
            try:
                while data := accepted.recv(1 << 20):
                    received += len(data)
            except ConnectionResetError:
                assert discards
        assert (received < sent) == discards, f"{received} of {sent} bytes have arrived"


@pytest.mark.parametrize(
    ("peer", "setting", "expected"),
    [
        ("127.0.0.1", None, NEARBY_SEND_BYTES),
        ("127.0.0.2", None, SYSTEM_DEFAULT),
        ("127.0.0.1", SYSTEM_DEFAULT, SYSTEM_DEFAULT),
        ("127.0.0.1", 102_400, 102_400),
        ("127.0.0.2", 102_400, 102_400),
    ],
)
def test_the_send_buffer_of_an_accepted_connection(peer: str, setting: int | None, expected: int) -> None:
    """A peer on another machine is one with another address than ours."""
    acceptor = SocketTransport().listen("127.0.0.1", 0, ListenOptions(send_buffer_bytes=setting))
    with (
        contextlib.closing(acceptor),
        socket.create_connection(("127.0.0.1", acceptor.port), source_address=(peer, 0)),
        contextlib.closing(acceptor.accept().channel) as channel,
    ):
        assert isinstance(channel, PlainChannel)
        size = channel.take_socket().getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    with socket.socket() as plain:
        if expected != SYSTEM_DEFAULT:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, expected)
            # The system doubles the value.
            assert size == plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        else:
            for other in (NEARBY_SEND_BYTES, 102_400):
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, other)
                assert size != plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
