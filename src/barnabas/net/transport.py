"""How a broker listens and connects: sockets here, or a network in memory that a simulation passes instead.

The event loop watches a channel by its `fileno`, so a network in memory comes with a loop that knows its numbers. That
way the seam costs a request nothing.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from typing import Final, NamedTuple, Protocol

from barnabas.errors import NetworkException
from barnabas.net.channel import Channel, PlainChannel
from barnabas.net.page_cache import Probe, choose_probe
from barnabas.primitives.file_slice import OpenFile

SYSTEM_DEFAULT: Final = -1
BACKLOG: Final = 128
# The send buffer of a connection within this machine. The system would let it grow to megabytes, and what is sent
# would have left the processor's cache before the peer reads it.
NEARBY_SEND_BYTES: Final = 256 * 1024
# How the system shows an IPv4 address on a socket that takes both kinds.
MAPPED_IPV4: Final = "::ffff:"
# The value of SO_LINGER: on, with zero seconds.
_AT_ONCE: Final = struct.pack("ii", 1, 0)


class CannotListen(OSError):
    """An address that cannot be bound, with advice."""


class ListenOptions(NamedTuple):
    # None: the system decides, except for peers on this machine.
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int = SYSTEM_DEFAULT
    backlog: int = BACKLOG


class Accepted(NamedTuple):
    """A new connection; `peer` and `local` are addresses with ports."""

    channel: Channel
    peer_host: str
    peer: str
    local: str


class Acceptor(Protocol):
    """A listening address."""

    @property
    def port(self) -> int:
        """The port, also where the system has chosen it."""

    def fileno(self) -> int:
        """The descriptor whose readiness the event loop watches."""

    def accept(self) -> Accepted:
        """The next connection. Raises BlockingIOError if there is none, another OSError if it cannot be accepted."""

    def close(self) -> None: ...


class Transport(Protocol):
    def listen(self, host: str, port: int, options: ListenOptions) -> Acceptor:
        """Takes the address, or raises CannotListen. An empty host is every address of the machine."""

    async def connect(self, host: str, port: int, *, timeout_s: float) -> Channel:
        """A connected channel, or NetworkException. When it is closed, what it has not sent yet is discarded.

        Otherwise a request that was given up, because the network loses packets, could arrive after requests that are
        newer and were sent over the next connection.
        """

    def is_cached(self, file: OpenFile, position: int, count: int) -> bool:
        """Whether a channel can send this range of a file without waiting for the disk."""


class SocketTransport:
    def __init__(self) -> None:
        self._probe: Probe | None = None

    def listen(self, host: str, port: int, options: ListenOptions) -> Acceptor:
        return SocketAcceptor(_bound_socket(host, port, options), options)

    async def connect(self, host: str, port: int, *, timeout_s: float) -> Channel:
        return await connect(host, port, timeout_s=timeout_s, discards_unsent=True)

    def is_cached(self, file: OpenFile, position: int, count: int) -> bool:
        if self._probe is None:
            self._probe = choose_probe()
        return self._probe(file.fileno(), position, count)


class SocketAcceptor:
    def __init__(self, listening: socket.socket, options: ListenOptions) -> None:
        self.port: int = listening.getsockname()[1]
        self._socket = listening
        self._send_buffer_bytes = options.send_buffer_bytes

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self) -> Accepted:
        connected, (host, port, *_) = self._socket.accept()
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            local_host, local_port = connected.getsockname()[:2]
            send_buffer_bytes = self._send_buffer_bytes
            if send_buffer_bytes is None:
                send_buffer_bytes = NEARBY_SEND_BYTES if host == local_host else SYSTEM_DEFAULT
            if send_buffer_bytes != SYSTEM_DEFAULT:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        except OSError as error:
            connected.close()
            raise ConnectionAbortedError("the peer disconnected while its socket was set up") from error
        host = host.removeprefix(MAPPED_IPV4)
        return Accepted(
            channel=PlainChannel(connected),
            peer_host=host,
            peer=host_and_port(host, port),
            local=host_and_port(local_host.removeprefix(MAPPED_IPV4), local_port),
        )

    def close(self) -> None:
        self._socket.close()


def host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bound_socket(host: str, port: int, options: ListenOptions) -> socket.socket:
    try:
        candidates = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {host}:{port}: the host is unknown ({error.strerror})"
        ) from error
    # One IPv6 socket that takes IPv4 too covers every address of the machine, where there is IPv6.
    candidates.sort(key=lambda found: found[0] != socket.AF_INET6 if not host else 0)
    failure: OSError | None = None
    for family, kind, protocol, _, address in candidates:
        try:
            listening = socket.socket(family, kind, protocol)
        except OSError as error:
            failure = error
            continue
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
            if options.receive_buffer_bytes != SYSTEM_DEFAULT:
                # Accepted sockets inherit it. Later would be too late: the window has been announced by then.
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
            listening.bind(address)
            listening.listen(options.backlog)
        except OSError as error:
            listening.close()
            failure = error
            continue
        return listening
    assert failure is not None
    raise cannot_listen(host, port, failure) from failure


def cannot_listen(host: str, port: int, failure: OSError, setting: str = "listeners") -> CannotListen:
    advice = {
        errno.EADDRINUSE: f"another process listens there; stop it or choose another port ({setting})",
        errno.EADDRNOTAVAIL: f"this machine has no such address ({setting})",
        errno.EACCES: f"ports below 1024 need privileges; choose another port ({setting})",
    }.get(failure.errno or 0, failure.strerror or str(failure))
    return CannotListen(f"cannot listen on {host}:{port}: {advice}")


async def connect(
    host: str,
    port: int,
    *,
    timeout_s: float,
    send_buffer_bytes: int = SYSTEM_DEFAULT,
    receive_buffer_bytes: int = SYSTEM_DEFAULT,
    discards_unsent: bool = False,
) -> Channel:
    """A channel to the first address of the name that takes the connection. Raises NetworkException."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            failure: OSError | None = None
            for family, kind, protocol, _, address in addresses:
                try:
                    connecting = socket.socket(family, kind, protocol)
                except OSError as error:
                    failure = error
                    continue
                try:
                    connecting.setblocking(False)
                    connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    if send_buffer_bytes > 0:
                        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
                    if receive_buffer_bytes > 0:
                        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
                    if discards_unsent:
                        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                    await loop.sock_connect(connecting, address)
                except OSError as error:
                    connecting.close()
                    failure = error
                except BaseException:
                    connecting.close()
                    raise
                else:
                    return PlainChannel(connecting)
    except TimeoutError:
        raise NetworkException(
            f"{host}:{port} did not take the connection within {round(timeout_s * 1000)} ms"
        ) from None
    except (socket.gaierror, UnicodeError) as unknown:
        raise NetworkException(f"the name {host!r} is not known here: {unknown}") from None
    reason = failure.strerror or str(failure) if failure is not None else "the name has no address"
    raise NetworkException(f"{host}:{port} cannot be reached: {reason}")
