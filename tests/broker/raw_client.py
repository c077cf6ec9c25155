"""A client that sends just what it is told and waits for the answer, for tests of single requests."""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any, Protocol, Self

from barnabas.protocol.apis import api_for_name
from barnabas.protocol.message import Message
from barnabas.protocol.requests import decode_response, encode_request

WAIT_S = 60


class Asking(Protocol):
    """Where requests go and answers come from: one broker, or the responsible brokers of a cluster."""

    def ask(self, api_name: str, version: int, body: Message) -> Any:
        """The body of the answer."""


class RawClient:
    def __init__(self, port: int, *, host: str = "127.0.0.1", client_id: str = "test") -> None:
        self._socket = socket.create_connection((host, port), timeout=WAIT_S)
        self._correlation_ids = itertools.count(1)
        self._client_id = client_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api_name: str, version: int, body: Message) -> Any:
        """The body of the answer."""
        correlation_id = self.send(api_name, version, body)
        response = decode_response(api_for_name(api_name), version, self.receive_frame())
        assert response.header.correlation_id == correlation_id
        return response.body

    def send(self, api_name: str, version: int, body: Message) -> int:
        correlation_id = next(self._correlation_ids)
        request = encode_request(api_for_name(api_name), version, correlation_id, self._client_id, body)
        self.send_bytes(struct.pack(">i", len(request)) + request)
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def end(self) -> None:
        """Sends nothing more; answers are still received."""
        self._socket.shutdown(socket.SHUT_WR)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.receive_exactly(4))
        return self.receive_exactly(size)

    def receive_exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            data = self._socket.recv(size - len(received))
            if not data:
                raise ConnectionError(
                    f"the broker has closed the connection after {len(received)} of {size} bytes"
                )
            received += data
        return bytes(received)

    def is_closed_by_broker(self) -> bool:
        """Waits for the end of the stream."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True
