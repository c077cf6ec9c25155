"""TLS on the interface of a channel: a non-blocking SSLSocket, after its handshake.

OpenSSL decrypts whole TLS records of up to 16 KiB. If a caller takes less, the rest stays in OpenSSL, and the event
loop does not know of it: `holds_back` tells, and the connection reads on. A send that could not be completed must be
repeated with the same bytes: the outbox does that, because it continues at the same place.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from barnabas.net.channel import NO_LINGERING, NOTHING_YET
from barnabas.primitives.file_slice import OpenFile

# As much goes to OpenSSL at once, in several TLS records.
SEND_BYTES: Final = 256 * 1024
STASH_BYTES: Final = 16 * 1024

# Everything on a loop's thread: all channels share a buffer.
_file_buffer: bytearray | None = None
# Descriptor of a channel, file, position and size of the bytes that stay in the buffer: its socket took only a part.
_refused: tuple[int, OpenFile, int, int] | None = None


class TlsChannel:
    __slots__ = ("_descriptor", "_socket", "_stash")

    def __init__(self, secured: ssl.SSLSocket) -> None:
        self._socket = secured
        self._descriptor = secured.fileno()
        # Bytes that `has_ended` had to receive.
        self._stash = b""

    def fileno(self) -> int:
        return self._descriptor

    def peer_certificate(self) -> bytes | None:
        """The verified certificate of the peer (DER), if it has one."""
        return self._socket.getpeercert(True) or None

    def holds_back(self) -> bool:
        """Whether there are bytes for which no event will come."""
        return bool(self._stash) or self._socket.pending() > 0

    def receive_into(self, buffer: memoryview) -> int:
        if self._stash:
            count = min(len(buffer), len(self._stash))
            buffer[:count] = self._stash[:count]
            self._stash = self._stash[count:]
            return count
        size = len(buffer)
        secured = self._socket
        try:
            count = secured.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return NOTHING_YET
        # What is pending is decrypted already, so none of these waits or fails.
        while 0 < count < size and secured.pending():
            count += secured.recv_into(buffer[count:])
        return count

    def receive(self, max_bytes: int) -> bytes | None:
        if self._stash:
            data, self._stash = self._stash[:max_bytes], self._stash[max_bytes:]
            return data
        secured = self._socket
        chunks: list[bytes] = []
        left = max_bytes
        try:
            while left:
                data = secured.recv(left)
                if not data:
                    break
                chunks.append(data)
                left -= len(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not chunks:
                return None
        except OSError:
            # What has come before counts; the next read meets the error again.
            if not chunks:
                raise
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def has_ended(self) -> bool:
        if self.holds_back():
            return False
        try:
            self._stash = self._socket.recv(STASH_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except OSError:
            return True
        return not self._stash

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more_follows: bool) -> int:
        first = parts[0]
        if len(parts) == 1 or len(first) >= SEND_BYTES:
            return self._write(memoryview(first)[:SEND_BYTES] if len(first) > SEND_BYTES else first)
        chosen = []
        left = SEND_BYTES
        for part in parts:
            taken = part if len(part) <= left else memoryview(part)[:left]
            chosen.append(taken)
            left -= len(taken)
            if not left:
                break
        return self._write(b"".join(chosen))

    def send_file(self, file: OpenFile, position: int, count: int) -> int:
        global _file_buffer, _refused
        if _file_buffer is None:
            _file_buffer = bytearray(SEND_BYTES)
        view = memoryview(_file_buffer)[: min(count, SEND_BYTES)]
        if _refused is None or _refused[:3] != (self._descriptor, file, position):
            size = os.preadv(file.fileno(), [view], position)
        else:
            # The same bytes again, which no other channel has replaced meanwhile.
            size = _refused[3]
        _refused = None
        if not size:
            return 0
        try:
            return self._write(view[:size])
        except BlockingIOError:
            _refused = (self._descriptor, file, position, size)
            raise

    def _write(self, data: bytes | bytearray | memoryview) -> int:
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            # The peer has ended the connection, in whatever way.
            raise ConnectionResetError(str(error)) from None

    def _forget_refused(self) -> None:
        """The next connection may get the same descriptor."""
        global _refused
        if _refused is not None and _refused[0] == self._descriptor:
            _refused = None

    def close(self) -> None:
        self._forget_refused()
        # A goodbye, if it can be sent without waiting; nobody waits for the peer's.
        with contextlib.suppress(OSError, ValueError):
            self._socket.unwrap()
        self._socket.close()

    def abort(self) -> None:
        self._forget_refused()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGERING)
        self._socket.close()


def wrap(
    connected: socket.socket, context: ssl.SSLContext, *, server_hostname: str | None = None
) -> ssl.SSLSocket:
    """TLS around a connected socket, before the handshake: for a client if there is a name of the server."""
    return context.wrap_socket(
        connected,
        server_side=server_hostname is None,
        do_handshake_on_connect=False,
        server_hostname=server_hostname,
    )


def explained(error: OSError) -> str:
    """Why a handshake failed, for people."""
    reason = getattr(error, "reason", None)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not accepted: {error.verify_message}"
    if reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL"):
        return "the other side does not use TLS"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client has no certificate, and ssl.client.auth=required"
    if is_hang_up(error):
        return "the other side ended the connection"
    return str(reason or error.strerror or error).replace("_", " ").lower()


def is_hang_up(error: OSError) -> bool:
    """Whether the other side has only ended the connection."""
    return (
        isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError)
        or getattr(error, "reason", None) == "UNEXPECTED_EOF_WHILE_READING"
    )
