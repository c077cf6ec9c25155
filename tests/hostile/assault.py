"""Sends frames to a broker over many connections at once, and keeps book of what became of each connection.

A connection that is answered is used again. One that is not answered within a moment (the request said that none is
wanted, or asked to wait, or was not whole) is given up. Connections come from many addresses of the loopback
network: from one address there would soon be no port left.
"""

from __future__ import annotations

import re
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tests.clients.broker_process import BrokerProcess

LANES: Final = 16
PATIENCE_S: Final = 0.2
ADDRESSES: Final = 100
LINE: Final = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] [A-Z]+ ")
CLOSED_LINE: Final = re.compile(r"connection from (\S+) closed: \S")


class Assault:
    """The book: by peer as the broker names it, how many connections there were, and how many of them it closed."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._selector = selectors.DefaultSelector()
        self._connected = 0
        self._log_start = len(broker.log_text())
        self.sent = 0
        self.answered = 0
        self.connections: Counter[str] = Counter()
        self.closed_by_broker: Counter[str] = Counter()

    def run(self, frames: Iterator[bytes]) -> None:
        lanes = [_Lane(self._connect()) for _ in range(LANES)]
        try:
            active = [lane for lane in lanes if self._send_next(lane, frames)]
            while active:
                ready = {key.data for key, _ in self._selector.select(PATIENCE_S / 4)}
                now_s = time.monotonic()
                for lane in list(active):
                    if lane in ready:
                        is_done = self._receive(lane)
                    else:
                        is_done = now_s > lane.deadline_s
                        if is_done:
                            self._selector.unregister(lane.socket)
                            self._reconnect(lane)
                    if is_done and not self._send_next(lane, frames):
                        active.remove(lane)
        finally:
            for lane in lanes:
                lane.socket.close()
            self._selector.close()

    def check_log(self) -> None:
        """One line for each connection that the broker closed, naming the peer and a reason; none beyond these."""
        text = self._broker.log_text()[self._log_start :]
        assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:3_000]
        for line in text.splitlines():
            assert LINE.match(line), f"a peer has written this into the log: {line!r}"
        lines = Counter(match[1] for match in CLOSED_LINE.finditer(text))
        for peer, count in self.closed_by_broker.items():
            assert lines[peer] >= count, f"{peer}: {count} connections closed, {lines[peer]} lines say so"
        for peer, count in self.connections.items():
            assert lines[peer] <= count, f"{peer}: {lines[peer]} lines about {count} connections"

    def _connect(self) -> socket.socket:
        self._connected += 1
        source = f"127.0.0.{2 + self._connected % ADDRESSES}" if sys.platform == "linux" else "127.0.0.1"
        connected = socket.create_connection(
            ("127.0.0.1", self._broker.port), timeout=60, source_address=(source, 0)
        )
        self.connections[_peer(connected)] += 1
        return connected

    def _reconnect(self, lane: _Lane) -> None:
        lane.socket.close()
        lane.received.clear()
        lane.socket = self._connect()

    def _send_next(self, lane: _Lane, frames: Iterator[bytes]) -> bool:
        frame = next(frames, None)
        if frame is None:
            return False
        for _ in range(2):
            try:
                lane.socket.sendall(frame)
                break
            except OSError:
                # The broker had closed the connection after its last answer.
                self.closed_by_broker[lane.peer] += 1
                self._reconnect(lane)
        self.sent += 1
        lane.deadline_s = time.monotonic() + PATIENCE_S
        self._selector.register(lane.socket, selectors.EVENT_READ, lane)
        return True

    def _receive(self, lane: _Lane) -> bool:
        """Whether the connection is ready for the next frame."""
        try:
            data = lane.socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(lane.socket)
            self.closed_by_broker[lane.peer] += 1
            self._reconnect(lane)
            return True
        lane.received += data
        size = int.from_bytes(lane.received[:4], "big")
        if len(lane.received) < 4 + size:
            return False
        self._selector.unregister(lane.socket)
        self.answered += 1
        if len(lane.received) > 4 + size:
            self._reconnect(lane)
        lane.received.clear()
        return True


class _Lane:
    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.received = bytearray()
        self.deadline_s = 0.0

    @property
    def peer(self) -> str:
        return _peer(self.socket)


def _peer(connected: socket.socket) -> str:
    host, port = connected.getsockname()
    return f"{host}:{port}"
