from __future__ import annotations

import asyncio
import base64
import socket

import pytest

from barnabas.net import http_endpoint
from barnabas.net.http_endpoint import HttpEndpoint

# More than the system takes for a peer that does not read.
PAGE_BYTES = 1 << 25


def ask(request: bytes, credentials: str | None = None) -> bytes:
    async def exchange() -> bytes:
        pages = {"/metrics": lambda: ("text/plain; version=0.0.4", "up 1\n")}
        endpoint = HttpEndpoint(pages, credentials)
        await endpoint.open("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
                writer.write(request)
                answer = await reader.read(-1)
                writer.close()
                await writer.wait_closed()
                return answer
        finally:
            await endpoint.close()

    return asyncio.run(exchange())


def test_get_and_head() -> None:
    answer = ask(b"GET /metrics?x=y HTTP/1.1\r\nHost: here\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 5" in head
    assert body == b"up 1\n"
    assert ask(b"HEAD /metrics HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x00\x00\x00\x10garbage\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", b"431"),
    ],
)
def test_what_is_not_understood_is_said(request_bytes: bytes, status: bytes) -> None:
    assert ask(request_bytes).split(b" ")[1] == status


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"", b"401"),
        (b"Authorization: Basic " + base64.b64encode(b"ann:wrong") + b"\r\n", b"401"),
        (b"Authorization: Bearer x\r\n", b"401"),
        (b"authorization:Basic " + base64.b64encode(b"ann:secret") + b"\r\n", b"200"),
    ],
)
def test_credentials(header: bytes, status: bytes) -> None:
    answer = ask(b"GET /metrics HTTP/1.1\r\n" + header + b"\r\n", "ann:secret")
    assert answer.split(b" ")[1] == status
    assert (b"WWW-Authenticate: Basic" in answer) == (status == b"401")
    assert (b"up 1" in answer) == (status == b"200")


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_peer_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch, is_closed: bool) -> None:
    """After a while, or when the endpoint closes."""
    monkeypatch.setattr(http_endpoint, "MAX_WAIT_S", 60.0 if is_closed else 0.05)

    async def test() -> None:
        endpoint = HttpEndpoint({"/metrics": lambda: ("text/plain", ["x" * PAGE_BYTES])})
        gone = asyncio.Event()

        close = endpoint._close

        async def note_close(writer: asyncio.StreamWriter) -> None:
            await close(writer)
            gone.set()

        monkeypatch.setattr(endpoint, "_close", note_close)
        await endpoint.open("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        with socket.socket() as peer:
            peer.setblocking(False)
            await loop.sock_connect(peer, ("127.0.0.1", endpoint.port))
            await loop.sock_sendall(peer, b"GET /metrics HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(30):
                assert (await loop.sock_recv(peer, 8)).startswith(b"HTTP/1.1")
                if is_closed:
                    await endpoint.close()
                else:
                    await gone.wait()
                received = 0
                while data := await loop.sock_recv(peer, 1 << 20):
                    received += len(data)
                assert received < PAGE_BYTES
                await endpoint.close()

    asyncio.run(test())
