"""The transport of a connection: a plain socket here; `tls_channel` has TLS.

Every call does at once what it can do without waiting. If it can do nothing, a send raises BlockingIOError. A receive
returns a special value instead, because it ends this way after every request, and an exception would cost as much as a
third of a request.
"""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from barnabas.primitives.file_slice import OpenFile
from barnabas.protocol.frames import FrameReader

MAX_PARTS_AT_ONCE: Final = 64
NOTHING_YET: Final = -1

# Plain integers: combining enumeration members costs more than the call that they are for.
_PEEK: Final = int(socket.MSG_PEEK)
_NO_SIGNAL: Final = int(socket.MSG_NOSIGNAL)
# Without it the few bytes before a file slice would travel in a packet of their own.
_MORE_FOLLOWS: Final = int(socket.MSG_NOSIGNAL | socket.MSG_MORE)
# On, for 0 seconds.
NO_LINGERING: Final = struct.pack("ii", 1, 0)


class Channel(Protocol):
    def fileno(self) -> int:
        """The descriptor whose readiness the event loop watches."""

    def receive_into(self, buffer: memoryview) -> int:
        """How many bytes came; 0 is the end of the stream, NOTHING_YET if there are none."""

    def receive(self, max_bytes: int) -> bytes | None:
        """The received bytes, in memory of their own; empty at the end of the stream, None if there are none yet."""

    def has_ended(self) -> bool:
        """Whether the peer sends nothing more, and all that it has sent was received."""

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more_follows: bool) -> int:
        """How many bytes of at most MAX_PARTS_AT_ONCE parts went out."""

    def send_file(self, file: OpenFile, position: int, count: int) -> int:
        """How many bytes of the file went out; 0 is the end of the file. The caller holds a reference to the file."""

    def close(self) -> None:
        """Ends the connection. The system still sends what it has taken, for minutes if the peer cannot be reached."""

    def abort(self) -> None:
        """Ends the connection. What the peer has not received by now, it never receives."""


class PlainChannel:
    __slots__ = ("_descriptor", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._descriptor = connected.fileno()

    def fileno(self) -> int:
        return self._descriptor

    def receive_into(self, buffer: memoryview) -> int:
        try:
            return self._socket.recv_into(buffer)
        except BlockingIOError:
            return NOTHING_YET

    def receive(self, max_bytes: int) -> bytes | None:
        try:
            return self._socket.recv(max_bytes)
        except BlockingIOError:
            return None

    def has_ended(self) -> bool:
        try:
            return not self._socket.recv(1, _PEEK)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more_follows: bool) -> int:
        flags = _MORE_FOLLOWS if more_follows else _NO_SIGNAL
        if len(parts) == 1:
            return self._socket.send(parts[0], flags)
        return self._socket.sendmsg(parts, (), flags)

    def send_file(self, file: OpenFile, position: int, count: int) -> int:
        return os.sendfile(self._descriptor, file.fileno(), position, count)

    def close(self) -> None:
        self._socket.close()

    def take_socket(self) -> socket.socket:
        """The socket, for TLS around it. The channel must not be used any more."""
        return self._socket

    def abort(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
        self._socket.close()


def receive_frames(channel: Channel, reader: FrameReader, frames: deque[bytes]) -> int:
    """One read, which adds the frames that it completes. How many bytes came; 0 and NOTHING_YET as for a channel."""
    missing_bytes = reader.missing_bytes
    if missing_bytes:
        data = channel.receive(missing_bytes)
        if data is None:
            return NOTHING_YET
        count = len(data)
        if count:
            frames.extend(reader.take(data))
    else:
        count = channel.receive_into(reader.next_buffer())
        if count > 0:
            frames.extend(reader.received(count))
    return count
