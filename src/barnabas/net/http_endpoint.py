"""Just enough of HTTP/1.1 for Prometheus and a health check: GET of a few paths, one request a connection.

A page comes in pieces, and other work of the event loop gets its turn between them: a page may have 100,000 lines.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl

MAX_REQUEST_BYTES: Final = 8 * 1024
MAX_WAIT_S: Final = 5.0
MAX_CONNECTIONS: Final = 32

# The writing of a page yields to other work after this time.
TURN_S: Final = 0.001

# Content type and body of an answer.
Page = Callable[[], tuple[str, Iterable[str]]]


class HttpEndpoint:
    def __init__(self, pages: Mapping[str, Page], credentials: str | None = None) -> None:
        """`credentials` are user:password, if clients have to send them."""
        self._pages = pages
        self._authorization = (
            None if credentials is None else b"Basic " + base64.b64encode(credentials.encode())
        )
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def bind(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Takes the address; `open` begins to accept."""
        self._server = await asyncio.start_server(
            self._serve,
            host or None,
            port,
            limit=MAX_REQUEST_BYTES,
            start_serving=False,
            ssl=context,
            ssl_handshake_timeout=None if context is None else MAX_WAIT_S,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def open(self, host: str, port: int) -> None:
        await self.bind(host, port)
        await self.start_serving()

    async def start_serving(self) -> None:
        assert self._server is not None
        await self._server.start_serving()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._connections:
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            if len(self._connections) <= MAX_CONNECTIONS:
                async with asyncio.timeout(MAX_WAIT_S):
                    writer.write(await self._answer(reader))
                    await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # A peer that is slow or gone gets no answer.
        finally:
            await self._close(writer)
            self._connections.discard(writer)

    async def _close(self, writer: asyncio.StreamWriter) -> None:
        """Drops what a peer has not read in time."""
        writer.close()
        with contextlib.suppress(ConnectionError):
            try:
                async with asyncio.timeout(MAX_WAIT_S):
                    await writer.wait_closed()
            except TimeoutError:
                writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response(
                431, "Request Header Fields Too Large", "text/plain", "The request is too large.\n"
            )
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(400, "Bad Request", "text/plain", "This is not HTTP/1.1.\n")
        if self._authorization is not None and not _is_authorized(head, self._authorization):
            return _response(
                401,
                "Unauthorized",
                "text/plain",
                "A user and a password are needed (barnabas.metrics.credentials).\n",
                headers='WWW-Authenticate: Basic realm="barnabas"\r\n',
            )
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _response(405, "Method Not Allowed", "text/plain", "Only GET is answered here.\n")
        page = self._pages.get(target.split("?", 1)[0])
        if page is None:
            known = ", ".join(self._pages)
            return _response(404, "Not Found", "text/plain", f"There is nothing here. There is: {known}\n")
        content_type, pieces = page()
        body = await _gathered(pieces)
        return _response(200, "OK", content_type, body, with_body=method == "GET")


async def _gathered(pieces: Iterable[str]) -> str:
    loop = asyncio.get_running_loop()
    gathered = []
    turn_end_s = loop.time() + TURN_S
    for piece in pieces:
        gathered.append(piece)
        if loop.time() >= turn_end_s:
            await asyncio.sleep(0)
            turn_end_s = loop.time() + TURN_S
    return "".join(gathered)


def _is_authorized(head: bytes, authorization: bytes) -> bool:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"authorization":
            return hmac.compare_digest(value.strip(), authorization)
    return False


def _response(
    status: int, phrase: str, content_type: str, body: str, *, with_body: bool = True, headers: str = ""
) -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: {content_type}; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\n{headers}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (content if with_body else b"")
