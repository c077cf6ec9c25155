"""Files over TLS, to clients that read slowly: the socket takes a part, and the rest follows."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from pathlib import Path

import pytest

from barnabas.net.tls_channel import SEND_BYTES, TlsChannel
from tests.net.plain_file import PlainFile
from tests.security.certificates import certificates, write_certificates

WAIT_S = 60
FILE_BYTES = 5 * SEND_BYTES + 12_345
SMALL_BUFFER_BYTES = 16 * 1024
READ_BYTES = 10_000


class Pair:
    """A channel, and a thread that reads what comes from it."""

    def __init__(self, context: ssl.SSLContext) -> None:
        server, client = socket.socketpair()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
        self.received = bytearray()
        self._client = client
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        secured = context.wrap_socket(server, server_side=True)
        secured.setblocking(False)
        self.channel = TlsChannel(secured)

    def _read(self) -> None:
        context = ssl.create_default_context(cadata=certificates()["ca"])
        with context.wrap_socket(self._client, server_hostname="localhost") as secured:
            secured.settimeout(WAIT_S)
            while data := secured.recv(READ_BYTES):
                self.received += data

    def close(self) -> None:
        self.channel.close()
        self._reader.join(WAIT_S)


@pytest.mark.parametrize("count", [1, 3])
def test_a_file_in_parts_that_the_socket_takes(tmp_path: Path, count: int) -> None:
    """Channels that take turns replace each other's bytes in the shared buffer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_certificates(tmp_path) / "server.pem")
    content = os.urandom(FILE_BYTES)
    (tmp_path / "data").write_bytes(content)
    pairs = [Pair(context) for _ in range(count)]
    refusals = 0
    file = PlainFile(tmp_path / "data")
    positions = dict.fromkeys(pairs, 0)
    while any(position < FILE_BYTES for position in positions.values()):
        for pair, position in positions.items():
            if position == FILE_BYTES:
                continue
            try:
                positions[pair] += pair.channel.send_file(file, position, FILE_BYTES - position)
            except BlockingIOError:
                refusals += 1
        waiting = [pair.channel for pair, position in positions.items() if position < FILE_BYTES]
        if waiting:
            assert select.select([], waiting, [], WAIT_S)[1]
    for pair in pairs:
        pair.close()
        assert pair.received == content
    assert refusals > 0
