"""Listening sockets, and the bounds on connections.

A listener accepts a few connections per turn. When the broker has its maximum number of connections, the listener
accepts none until one closes, as in Apache Kafka. If an address has its maximum, the listener accepts its connections
and closes them at once. It closes connections that were inactive for too long. Connections never take the last file
descriptors of the process: a log that cannot open a file is worse than a client that has to wait.

A `CreationQuota` bounds the rate of new connections. If the total rate is too high, the newest connection waits,
accepted, and all later ones wait in the system's backlog. If the rate of an address is too high, the listener accepts
its connections, does not read from them for a while, and closes them, as in Apache Kafka: this slows down a client that
retries again and again.
"""

from __future__ import annotations

import errno
import logging
import resource
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final, Protocol

from barnabas.net.channel import Channel, PlainChannel
from barnabas.net.connection import Connection, FrameHandler
from barnabas.net.page_cache import Probe, choose_probe
from barnabas.net.request_memory import UNLIMITED, RequestMemory
from barnabas.protocol.frames import RECEIVE_BUFFER_BYTES, FrameReader

log = logging.getLogger(__name__)

ACCEPTS_A_TURN: Final = 32
BACKLOG: Final = 128
# The time without accepting after the system has run out of descriptors or memory for a connection.
PAUSE_AFTER_EXHAUSTION_S: Final = 0.5
EXHAUSTION: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
SYSTEM_DEFAULT: Final = -1
# The maximum number of connections that wait before they are closed; further ones are closed at once.
MAX_THROTTLED: Final = 1_000
# How the system shows an IPv4 address on a socket that takes both kinds.
MAPPED_IPV4: Final = "::ffff:"
# Of all descriptors that the process may have; the others are for files alone.
CONNECTIONS_SHARE_OF_DESCRIPTORS: Final = 0.75


class CannotListen(OSError):
    """An address that cannot be bound, with what to do about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Kafka's settings of the same names."""

    max_connections: int = 2**31 - 1
    max_connections_by_listener: Mapping[str, int] = field(default_factory=dict)
    max_connections_per_ip: int = 2**31 - 1
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    connections_max_idle_ms: int = 600_000
    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_send_buffer_bytes: int = SYSTEM_DEFAULT
    socket_receive_buffer_bytes: int = SYSTEM_DEFAULT
    socket_listen_backlog_size: int = BACKLOG
    queued_max_request_bytes: int = UNLIMITED


class CreationQuota(Protocol):
    def delay_ms(self, listener: str) -> int:
        """Counts a new connection. Returns how long it, and all connections after it, must wait."""

    def refuse_ms(self, listener: str, address: str) -> int:
        """Counts a connection from the address and returns 0.

        If there are too many, counts nothing and returns the time after which the connection is to be closed.
        """


class Connections:
    """All connections of a broker, over all its listeners."""

    def __init__(self, loop: AbstractEventLoop, executor: Executor, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.loop = loop
        self._executor = executor
        self._open: dict[Connection, tuple[Listener, str]] = {}
        self._count_by_address: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._memory = RequestMemory(loop, limits.queued_max_request_bytes)
        # The system assigns the lowest free descriptor: a high one shows that few are left.
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            descriptors = 2**31 - 1
        self.last_descriptor = int(descriptors * CONNECTIONS_SHARE_OF_DESCRIPTORS)
        self._probe: Probe | None = None
        self._reaper: TimerHandle | None = None
        self._throttled: dict[socket.socket, TimerHandle] = {}
        self.creation_quota: CreationQuota | None = None
        self.accepted = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._open)

    def is_full(self, listener: Listener) -> bool:
        limits = self.limits
        return len(
            self._open
        ) >= limits.max_connections or listener.open_connections >= limits.max_connections_by_listener.get(
            listener.name, limits.max_connections
        )

    def change_limits(self, limits: ConnectionLimits) -> None:
        """Existing connections stay. Waiting connections are accepted if there is room now."""
        self.limits = limits
        for listener in self._listeners:
            listener.accept_again()

    def bind(self, host: str, port: int, name: str = "") -> Listener:
        """Takes the address; `Listener.open` begins to accept. An empty host is every address of the machine."""
        listener = Listener(self, _bound_socket(host, port, self.limits), name)
        self._listeners.append(listener)
        if self._reaper is None:
            self._schedule_reaper()
        return listener

    def admit(
        self,
        listener: Listener,
        connected: socket.socket,
        address: str,
        peer: str,
        local: str,
        handler: FrameHandler,
    ) -> None:
        quota = self.creation_quota
        refuse_ms = 0 if quota is None else quota.refuse_ms(listener.name, address)
        if refuse_ms > 0:
            self._throttle(connected, peer, refuse_ms)
            return
        limit = self.limits.max_connections_per_ip_overrides.get(address, self.limits.max_connections_per_ip)
        if self._count_by_address.get(address, 0) >= limit:
            self.refused += 1
            log.warning("connection from %s refused: %s has %d connections already", peer, address, limit)
            connected.close()
            return
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.limits.socket_send_buffer_bytes != SYSTEM_DEFAULT:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.socket_send_buffer_bytes)
        channel: Channel = PlainChannel(connected)
        connection = Connection(
            channel,
            loop=self.loop,
            executor=self._executor,
            reader=FrameReader(
                max_frame_bytes=self.limits.socket_request_max_bytes, receive_buffer=self._receive_buffer
            ),
            handler=handler,
            on_close=self._forget,
            memory=self._memory,
            is_cached=self._is_cached,
            peer=peer,
            local=local,
        )
        self._open[connection] = (listener, address)
        listener.open_connections += 1
        self._count_by_address[address] = self._count_by_address.get(address, 0) + 1
        self.accepted += 1
        log.debug("Connection from %s to %s accepted by listener %s", peer, local, listener.name)
        connection.open()

    def close(self) -> None:
        """Stops listening and closes every connection, including those with a request in progress."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for listener in self._listeners:
            listener.close()
        for connected, timer in self._throttled.items():
            timer.cancel()
            connected.close()
        self._throttled.clear()
        for connection in list(self._open):
            connection.close(None, "the broker stops")
        self._memory.close()

    def _throttle(self, connected: socket.socket, peer: str, duration_ms: int) -> None:
        """Leaves a connection that came too fast alone for a while, then closes it."""
        self.refused += 1
        log.debug("connection from %s refused in %d ms: too many come from there", peer, duration_ms)
        if len(self._throttled) >= MAX_THROTTLED:
            connected.close()
        else:
            self._throttled[connected] = self.loop.call_later(
                duration_ms / 1_000, self._close_throttled, connected
            )

    def _close_throttled(self, connected: socket.socket) -> None:
        del self._throttled[connected]
        connected.close()

    def _forget(self, connection: Connection) -> None:
        ended, address = self._open.pop(connection)
        ended.open_connections -= 1
        left = self._count_by_address[address] - 1
        if left:
            self._count_by_address[address] = left
        else:
            del self._count_by_address[address]
        for listener in self._listeners:
            listener.accept_again()

    def _is_cached(self, descriptor: int, position: int, count: int) -> bool:
        if self._probe is None:
            self._probe = choose_probe()
        return self._probe(descriptor, position, count)

    def _schedule_reaper(self) -> None:
        idle_s = self.limits.connections_max_idle_ms / 1_000
        if idle_s > 0:
            self._reaper = self.loop.call_later(min(max(idle_s / 4, 0.01), 30.0), self._reap)

    def _reap(self) -> None:
        before_s = self.loop.time() - self.limits.connections_max_idle_ms / 1_000
        for connection in [each for each in self._open if each.is_idle_since(before_s)]:
            log.info("connection from %s closed: idle", connection.peer)
            connection.close(None, "idle")
        self._schedule_reaper()


class Listener:
    def __init__(self, connections: Connections, listening: socket.socket, name: str) -> None:
        self.name = name
        self.open_connections = 0
        self.host, self.port = listening.getsockname()[:2]
        self._connections = connections
        self._loop = connections.loop
        self._socket = listening
        self._handler: FrameHandler | None = None
        self._is_open = False
        self._is_accepting = False
        self._pause: TimerHandle | None = None
        # A connection that has come too fast and waits for the end of the pause.
        self._delayed: tuple[socket.socket, str, str] | None = None

    def open(self, handler: FrameHandler) -> None:
        self._handler = handler
        self._is_open = True
        self.accept_again()

    def accept_again(self) -> None:
        """Looks whether there is room. It is called whenever a connection has gone."""
        if self._delayed is not None and self._may_accept:
            connected, address, peer = self._delayed
            self._delayed = None
            self._admit(connected, address, peer)
        if self._may_accept and not self._is_accepting:
            self._is_accepting = True
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    @property
    def _may_accept(self) -> bool:
        return self._is_open and self._pause is None and not self._connections.is_full(self)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._is_open = False
        self._stop_accepting()
        if self._delayed is not None:
            self._delayed[0].close()
            self._delayed = None
        self._socket.close()

    def _stop_accepting(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._socket.fileno())

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if self._connections.is_full(self):
                log.warning(
                    "%d connections, %d of them here, as many as max.connections allows: new ones wait until one is"
                    " closed",
                    len(self._connections),
                    self.open_connections,
                )
                self._stop_accepting()
                return
            try:
                connected, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in EXHAUSTION:
                    continue  # The peer has gone before it was accepted.
                self._pause_accepting(error.strerror or str(error))
                return
            if connected.fileno() > self._connections.last_descriptor:
                connected.close()
                self._pause_accepting("the file descriptors that are left are for the logs (ulimit -n)")
                return
            host = address[0].removeprefix(MAPPED_IPV4)
            peer = _host_and_port(host, address[1])
            quota = self._connections.creation_quota
            delay_ms = 0 if quota is None else quota.delay_ms(self.name)
            if delay_ms > 0:
                self._delayed = (connected, host, peer)
                self._stop_accepting()
                self._pause = self._loop.call_later(delay_ms / 1_000, self._end_pause)
                return
            self._admit(connected, host, peer)

    def _admit(self, connected: socket.socket, address: str, peer: str) -> None:
        assert self._handler is not None
        try:
            host, port = connected.getsockname()[:2]
            local = _host_and_port(host.removeprefix(MAPPED_IPV4), port)
            self._connections.admit(self, connected, address, peer, local, self._handler)
        except OSError:
            connected.close()  # The peer has gone while its socket was set up.

    def _pause_accepting(self, reason: str) -> None:
        log.error("no connection can be accepted: %s; trying again in half a second", reason)
        self._stop_accepting()
        self._pause = self._loop.call_later(PAUSE_AFTER_EXHAUSTION_S, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self.accept_again()


def _host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bound_socket(host: str, port: int, limits: ConnectionLimits) -> socket.socket:
    try:
        candidates = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {host}:{port}: the host is unknown ({error.strerror})"
        ) from error
    # Every address of the machine is reached by one IPv6 socket that takes IPv4 too, where there is IPv6.
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
            if limits.socket_receive_buffer_bytes != SYSTEM_DEFAULT:
                # Accepted sockets inherit it; set later it would come after the window has been announced.
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.socket_receive_buffer_bytes)
            listening.bind(address)
            listening.listen(limits.socket_listen_backlog_size)
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
