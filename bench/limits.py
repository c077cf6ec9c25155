"""The limits of this machine and of Python: servers that do one thing each, for comparison with a broker.

One server answers any fetch with the same bytes by `sendfile`. The other appends: it receives a request, verifies the
checksum of its batch, sets the offset, writes the batch and answers. It has no event loop, no parsing and no state.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.net.transport import NEARBY_SEND_BYTES
from barnabas.primitives.crc32c import crc32c
from barnabas.protocol.apis import api_for_name
from barnabas.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.requests import encode_response
from bench import load

# The part of a batch that its checksum covers, and the position of the checksum.
CRC_POSITION: Final = 17
CHECKED_POSITION: Final = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A server in a separate process."""

    port: int
    pid: int


@contextmanager
def sendfile_alone(folder: Path, answer_bytes: int) -> Iterator[Limit]:
    """Any fetch of that many bytes is answered with those of a file, and nothing else is done."""
    path = folder / "limit-fetch"
    path.write_bytes(os.urandom(answer_bytes))
    request_bytes = len(load.fetch_frame("limit", 0, answer_bytes))

    def serve(connected: socket.socket) -> None:
        # With the system's choice it would be slower than the broker.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEARBY_SEND_BYTES)
        request = bytearray(request_bytes)
        with path.open("rb") as file:
            while connected.recv_into(request, request_bytes, socket.MSG_WAITALL) == request_bytes:
                connected.send(struct.pack(">i", answer_bytes), socket.MSG_MORE)
                sent = 0
                while sent < answer_bytes:
                    sent += os.sendfile(connected.fileno(), file.fileno(), sent, answer_bytes - sent)

    with _serving(serve) as limit:
        yield limit


@contextmanager
def append_alone(folder: Path, batch: bytes) -> Iterator[Limit]:
    """Appends the batch of each request to a file, which starts empty for each connection."""
    path = folder / f"limit-produce-{len(batch)}"
    request_bytes = len(load.produce_frame("limit", batch))
    at = load.produce_frame("limit", batch).index(batch)
    answer = _produced()

    def serve(connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = bytearray(request_bytes)
        records = memoryview(request)[at : at + len(batch)]
        checked = records[CHECKED_POSITION:]
        with path.open("wb", buffering=0) as file:
            position = 0
            while connected.recv_into(request, request_bytes, socket.MSG_WAITALL) == request_bytes:
                assert crc32c(checked) == struct.unpack_from(">I", records, CRC_POSITION)[0]
                struct.pack_into(">q", records, 0, position)
                position += os.pwrite(file.fileno(), records, position)
                connected.send(answer)
        path.write_bytes(b"")

    with _serving(serve) as limit:
        yield limit


def _produced() -> bytes:
    partitions = [PartitionProduceResponse(index=0, base_offset=0)]
    body = ProduceResponse(responses=[TopicProduceResponse(name="limit", partition_responses=partitions)])
    answer = encode_response(api_for_name("Produce"), load.PRODUCE_VERSION, 1, body)
    return struct.pack(">i", len(answer)) + answer


@contextmanager
def _serving(serve: Callable[[socket.socket], None]) -> Iterator[Limit]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = multiprocessing.get_context("fork").Process(
            target=_serve_all, args=(listener, serve), daemon=True
        )
        process.start()
        assert process.pid is not None
        try:
            yield Limit(port=listener.getsockname()[1], pid=process.pid)
        finally:
            process.kill()
            process.join()


def _serve_all(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """One connection after the other, until the process is ended."""
    while True:
        connected, _ = listener.accept()
        with connected:
            serve(connected)
