"""Brokers of a test that speak as the test says, for links to other brokers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from barnabas.protocol.apis import Api
from barnabas.protocol.message import Message
from barnabas.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from barnabas.protocol.requests import decode_request, encode_response

# The answer to a request; None ends the connection.
Answer = Callable[[Any], Awaitable[Message | None]]


class ScriptedBroker:
    """Takes connections, notes the requests and answers each as the test wants."""

    def __init__(self, answer: Answer, versions: dict[int, tuple[int, int]] | None = None) -> None:
        self._answer = answer
        self._versions = versions or {}
        self.requests: list[Any] = []
        self.connections = 0
        self.open_connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def names(self) -> list[str]:
        return [request.api.name for request in self.requests]

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        self._writers.add(writer)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open_connections -= 1
            self._writers.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        request = decode_request(await reader.readexactly(size))
        self.requests.append(request)
        body = self._own_versions() if request.api.name == "ApiVersions" else await self._answer(request)
        if body is None:
            return False
        writer.write(_frame(request.api, request.version, request.header.correlation_id, body))
        return True

    def _own_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in self._versions.items()
            ]
        )


def _frame(api: Api, version: int, correlation_id: int, body: Message) -> bytes:
    encoded = encode_response(api, version, correlation_id, body)
    return struct.pack(">i", len(encoded)) + bytes(encoded)
