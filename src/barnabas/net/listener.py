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
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.errors import KafkaError
from barnabas.net.channel import Channel
from barnabas.net.connection import Connection, FrameHandler, Shared
from barnabas.net.request_memory import SMALL_HURRY, SMALL_PART, UNLIMITED, RequestMemory
from barnabas.net.transport import BACKLOG, SYSTEM_DEFAULT, Accepted, Acceptor, ListenOptions, Transport
from barnabas.protocol.frames import RECEIVE_BUFFER_BYTES, FrameReader
from barnabas.value import Value, field

if TYPE_CHECKING:
    import ssl

    from barnabas.net.tls_handshakes import Handshakes

log = logging.getLogger(__name__)

ACCEPTS_A_TURN: Final = 32
# The time without accepting after the system has run out of descriptors or memory for a connection.
PAUSE_AFTER_EXHAUSTION_S: Final = 0.5
EXHAUSTION: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# The maximum number of connections that wait before they are closed; further ones are closed at once.
MAX_THROTTLED: Final = 1_000
# Of all descriptors that the process may have; the others are for files alone.
CONNECTIONS_SHARE_OF_DESCRIPTORS: Final = 0.75


class ConnectionLimits(Value, kw_only=True):
    """Kafka's settings of the same names."""

    max_connections: int = 2**31 - 1
    max_connections_by_listener: Mapping[str, int] = field(default_factory=dict)
    max_connections_per_ip: int = 2**31 - 1
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    connections_max_idle_ms: int = 600_000
    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_send_buffer_bytes: int | None = None
    socket_receive_buffer_bytes: int = SYSTEM_DEFAULT
    socket_listen_backlog_size: int = BACKLOG
    queued_max_request_bytes: int = UNLIMITED
    tls_handshake_timeout_ms: int = 10_000


class ListenerSecurity(Protocol):
    """How a listener secures its connections; a listener of PLAINTEXT has none."""

    def tls_context(self) -> ssl.SSLContext | None:
        """For the next connection; None if the listener has no TLS."""

    def handshake_failed(self) -> None:
        """Takes note of a TLS handshake that failed, unless the client has only left."""

    def begin(self, connection: Connection, channel: Channel) -> None:
        """Takes note of a new connection before its first request. Raises KafkaError if it must end."""


class CreationQuota(Protocol):
    def delay_ms(self, listener: str) -> int:
        """Counts a new connection. Returns how long it, and all connections after it, must wait."""

    def refuse_ms(self, listener: str, address: str) -> int:
        """Counts a connection from the address and returns 0.

        If there are too many, counts nothing and returns the time after which the connection is to be closed.
        """


class Connections:
    """All connections of a broker, over all its listeners."""

    def __init__(
        self, loop: AbstractEventLoop, executor: Executor, limits: ConnectionLimits, transport: Transport
    ) -> None:
        self.limits = limits
        self.loop = loop
        self._transport = transport
        self._open: dict[Connection, tuple[Listener, str]] = {}
        self._count_by_address: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._receive_buffer = bytearray(RECEIVE_BUFFER_BYTES)
        capacity_bytes = limits.queued_max_request_bytes
        self._memory = RequestMemory(loop, capacity_bytes)
        small_bytes = capacity_bytes if capacity_bytes < 0 else capacity_bytes // SMALL_PART
        self._small_memory = RequestMemory(loop, small_bytes, hurry=SMALL_HURRY)
        self._shared = Shared(
            loop, executor, self._memory, self._small_memory, transport.is_cached, self._forget
        )
        # The system assigns the lowest free descriptor: a high one shows that few are left.
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors == resource.RLIM_INFINITY:
            descriptors = 2**31 - 1
        self.last_descriptor = int(descriptors * CONNECTIONS_SHARE_OF_DESCRIPTORS)
        self._reaper: TimerHandle | None = None
        self._throttled: dict[Channel, TimerHandle] = {}
        # Loaded with the first connection of a listener with TLS.
        self._handshakes: Handshakes | None = None
        self.creation_quota: CreationQuota | None = None
        self.accepted = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._open)

    def is_full(self, listener: Listener) -> bool:
        limits = self.limits
        count = len(self._open) + (0 if self._handshakes is None else len(self._handshakes))
        return (
            count >= limits.max_connections
            or listener.open_connections
            >= limits.max_connections_by_listener.get(listener.name, limits.max_connections)
        )

    def change_limits(self, limits: ConnectionLimits) -> None:
        """Existing connections stay. Waiting connections are accepted if there is room now."""
        self.limits = limits
        for listener in self._listeners:
            listener.accept_again()

    def bind(self, host: str, port: int, name: str = "", *, has_tls: bool = False) -> Listener:
        """Takes the address; `Listener.open` begins to accept. An empty host is every address of the machine."""
        send_buffer_bytes = self.limits.socket_send_buffer_bytes
        if send_buffer_bytes is None and has_tls:
            # What is encrypted is in the cache anyway, and has to wait less often in a large buffer.
            send_buffer_bytes = SYSTEM_DEFAULT
        options = ListenOptions(
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=self.limits.socket_receive_buffer_bytes,
            backlog=self.limits.socket_listen_backlog_size,
        )
        listener = Listener(self, self._transport.listen(host, port, options), name)
        self._listeners.append(listener)
        if self._reaper is None:
            self._schedule_reaper()
        return listener

    def admit(self, listener: Listener, accepted: Accepted, handler: FrameHandler) -> None:
        address, peer, local = accepted.peer_host, accepted.peer, accepted.local
        quota = self.creation_quota
        refuse_ms = 0 if quota is None else quota.refuse_ms(listener.name, address)
        if refuse_ms > 0:
            self._throttle(accepted.channel, peer, refuse_ms)
            return
        limit = self.limits.max_connections_per_ip_overrides.get(address, self.limits.max_connections_per_ip)
        if self._count_by_address.get(address, 0) >= limit:
            self.refused += 1
            log.warning("connection from %s refused: %s has %d connections already", peer, address, limit)
            accepted.channel.close()
            return
        listener.open_connections += 1
        self._count_by_address[address] = self._count_by_address.get(address, 0) + 1
        self.accepted += 1
        log.debug("Connection from %s to %s accepted by listener %s", peer, local, listener.name)
        context = None if listener.security is None else listener.security.tls_context()
        if context is None:
            self._open_connection(listener, accepted, handler, accepted.channel)
        else:
            ended = partial(self._open_connection, listener, accepted, handler)
            assert listener.security is not None
            on_failure = listener.security.handshake_failed
            self._tls_handshakes().begin(accepted.channel, context, peer, ended, on_failure)

    def _tls_handshakes(self) -> Handshakes:
        if self._handshakes is None:
            from barnabas.net.tls_handshakes import Handshakes

            self._handshakes = Handshakes(self.loop, timeout_s=self.limits.tls_handshake_timeout_ms / 1_000)
        return self._handshakes

    def _open_connection(
        self, listener: Listener, accepted: Accepted, handler: FrameHandler, channel: Channel | None
    ) -> None:
        """Without a channel, if its TLS handshake failed."""
        if channel is None:
            self._uncount(listener, accepted.peer_host)
            return
        connection = Connection(
            channel,
            self._shared,
            reader=FrameReader(
                max_frame_bytes=self.limits.socket_request_max_bytes, receive_buffer=self._receive_buffer
            ),
            handler=handler,
            peer=accepted.peer,
            local=accepted.local,
        )
        self._open[connection] = (listener, accepted.peer_host)
        if listener.security is not None:
            try:
                listener.security.begin(connection, channel)
            except KafkaError as error:
                connection.close(str(error))
                return
        connection.open()

    def close(self) -> None:
        """Stops listening and closes every connection, including those with a request in progress."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        for listener in self._listeners:
            listener.close()
        for channel, timer in self._throttled.items():
            timer.cancel()
            channel.close()
        self._throttled.clear()
        if self._handshakes is not None:
            self._handshakes.close()
        for connection in list(self._open):
            connection.close(None, "the broker stops")
        self._memory.close()
        self._small_memory.close()

    def _throttle(self, channel: Channel, peer: str, duration_ms: int) -> None:
        """Leaves a connection that came too fast alone for a while, then closes it."""
        self.refused += 1
        log.debug("connection from %s refused in %d ms: too many come from there", peer, duration_ms)
        if len(self._throttled) >= MAX_THROTTLED:
            channel.close()
        else:
            self._throttled[channel] = self.loop.call_later(
                duration_ms / 1_000, self._close_throttled, channel
            )

    def _close_throttled(self, channel: Channel) -> None:
        del self._throttled[channel]
        channel.close()

    def _forget(self, connection: Connection) -> None:
        self._uncount(*self._open.pop(connection))

    def _uncount(self, ended: Listener, address: str) -> None:
        ended.open_connections -= 1
        left = self._count_by_address[address] - 1
        if left:
            self._count_by_address[address] = left
        else:
            del self._count_by_address[address]
        for listener in self._listeners:
            listener.accept_again()

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
    def __init__(self, connections: Connections, acceptor: Acceptor, name: str) -> None:
        self.name = name
        self.open_connections = 0
        self.port = acceptor.port
        self.security: ListenerSecurity | None = None
        self._connections = connections
        self._loop = connections.loop
        self._acceptor = acceptor
        self._handler: FrameHandler | None = None
        self._is_open = False
        self._is_accepting = False
        self._pause: TimerHandle | None = None
        # A connection that has come too fast and waits for the end of the pause.
        self._delayed: Accepted | None = None

    def open(self, handler: FrameHandler, security: ListenerSecurity | None = None) -> None:
        self._handler = handler
        self.security = security
        self._is_open = True
        self.accept_again()

    def accept_again(self) -> None:
        """Looks whether there is room. It is called whenever a connection has gone."""
        if self._delayed is not None and self._may_accept:
            delayed = self._delayed
            self._delayed = None
            self._admit(delayed)
        if self._may_accept and not self._is_accepting:
            self._is_accepting = True
            self._loop.add_reader(self._acceptor.fileno(), self._on_acceptable)

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
            self._delayed.channel.close()
            self._delayed = None
        self._acceptor.close()

    def _stop_accepting(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._acceptor.fileno())

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
                accepted = self._acceptor.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in EXHAUSTION:
                    continue  # The peer has gone before it was accepted.
                self._pause_accepting(error.strerror or str(error))
                return
            if accepted.channel.fileno() > self._connections.last_descriptor:
                accepted.channel.close()
                self._pause_accepting("the file descriptors that are left are for the logs (ulimit -n)")
                return
            quota = self._connections.creation_quota
            delay_ms = 0 if quota is None else quota.delay_ms(self.name)
            if delay_ms > 0:
                self._delayed = accepted
                self._stop_accepting()
                self._pause = self._loop.call_later(delay_ms / 1_000, self._end_pause)
                return
            self._admit(accepted)

    def _admit(self, accepted: Accepted) -> None:
        assert self._handler is not None
        self._connections.admit(self, accepted, self._handler)

    def _pause_accepting(self, reason: str) -> None:
        log.error("no connection can be accepted: %s; trying again in half a second", reason)
        self._stop_accepting()
        self._pause = self._loop.call_later(PAUSE_AFTER_EXHAUSTION_S, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self.accept_again()
