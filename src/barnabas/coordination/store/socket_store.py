"""The store of the brokers of one host: the contract of `store`, over a socket to the process that has the tree.

A session is a connection. When the connection ends, the session is over, on both sides: the process removes what the
session owns, and the broker opens another one. A broker asks for a connection by passing one end of a socket pair
through the door, a datagram socket that it has inherited. So no other user or program of the host can connect, and no
file is left behind. If the process that has the store dies, the next one serves what waits in the door.

Requests are answered in their order. An event arrives before the answers that follow it, so that a session sees a
change no earlier than its watchers do. Pings find out that the other side does not run, or does not read.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from barnabas.coordination.store.contract import (
    BadArguments,
    Operation,
    OperationResult,
    SessionExpired,
    SessionState,
    Stat,
    StoreError,
    StoreUnavailable,
    Watcher,
    validate_count,
    validate_path,
)
from barnabas.coordination.store.session import EngineSession
from barnabas.coordination.store.socket_messages import (
    BadMessage,
    FrameSplitter,
    Kind,
    Reader,
    Writer,
    read_error,
    read_event,
    read_results,
    read_state,
    write_operations,
)
from barnabas.coordination.store.watches import WatchKind

T = TypeVar("T")

# Of one session, under way at once. The other side stops reading at twice as many.
REQUESTS_MAX: Final = 500
PATHS_A_REQUEST: Final = 1_000
# In one session time-out. A side that misses as many of the other's is cut off.
PINGS_A_TIMEOUT: Final = 3
# A store that has just been killed is back in less.
CONNECTION_TIMEOUT_S: Final = 10.0
CLOSING_TIMEOUT_S: Final = 10.0


class SocketStore:
    """The brokers' side of the door. Sessions come from `connect`."""

    def __init__(self, door: socket.socket, *, session_timeout_ms: int) -> None:
        """`door` stays the caller's."""
        self._door = door
        self._session_timeout_ms = session_timeout_ms
        # The other side says so when a session is opened.
        self.may_have_lost = False

    async def connect(self) -> SocketSession:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with theirs:
                socket.send_fds(self._door, [b"session"], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise StoreUnavailable(f"the process that has the store takes no connection: {error}") from None
        session = SocketSession(loop, self._session_timeout_ms)
        await loop.create_unix_connection(lambda: session, sock=ours)
        try:
            self.may_have_lost = await asyncio.wait_for(session.open(), CONNECTION_TIMEOUT_S)
        except TimeoutError:
            session.abort()
            raise StoreUnavailable(
                f"the process that has the store did not answer within {CONNECTION_TIMEOUT_S:.0f} s"
            ) from None
        except SessionExpired as error:
            raise StoreUnavailable(f"the process that has the store closed the connection: {error}") from None
        except BaseException:
            session.abort()
            raise
        return session

    async def close(self) -> None:
        """Sessions are closed by their owners."""


class SocketSession(EngineSession, asyncio.Protocol):
    """A `Store` over a connection."""

    def __init__(self, loop: AbstractEventLoop, session_timeout_ms: int) -> None:
        super().__init__(loop)
        self._timeout_ms = session_timeout_ms
        self._session_id = 0
        self._state = SessionState.CONNECTED
        self._transport: asyncio.Transport | None = None
        self._frames = FrameSplitter()
        self._last_request_id = 0
        # What to do with the answers to requests under way.
        self._answers: dict[int, Callable[[Reader | StoreError], None]] = {}
        self._slots = asyncio.Semaphore(REQUESTS_MAX)
        self._unanswered_pings = 0
        self._pinging: TimerHandle | None = None
        self._ended: asyncio.Future[None] = loop.create_future()

    @property
    def session_id(self) -> int:
        return self._session_id

    async def open(self) -> bool:
        """Returns whether the store may have lost something."""

        def opened(reader: Reader) -> bool:
            self._session_id = reader.long()
            return bool(reader.byte())

        may_have_lost = await self._ask(
            Kind.OPEN, lambda request: request.long(self._timeout_ms).long(PINGS_A_TIMEOUT), opened
        )
        self._ping()
        return may_have_lost

    async def exists(self, path: str, watcher: Watcher | None = None) -> Stat | None:
        def found(reader: Reader) -> Stat | None:
            stat = reader.stat() if reader.byte() else None
            self._watch(WatchKind.ABSENT if stat is None else WatchKind.DATA, path, watcher)
            return stat

        return await self._read(Kind.EXISTS, path, watcher, found)

    async def get(self, path: str, watcher: Watcher | None = None) -> tuple[bytes, Stat]:
        def found(reader: Reader) -> tuple[bytes, Stat]:
            self._watch(WatchKind.DATA, path, watcher)
            return reader.data(), reader.stat()

        return await self._read(Kind.GET, path, watcher, found)

    async def get_all(
        self, paths: Sequence[str], watcher: Watcher | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        for path in paths:
            validate_path(path)
        found: list[tuple[bytes, Stat] | None] = []
        while len(found) < len(paths):
            asked = paths[len(found) : len(found) + PATHS_A_REQUEST]
            # The answer has the first of them, at least one.
            found += await self._get_some(asked, watcher)
        return found

    async def _get_some(
        self, paths: Sequence[str], watcher: Watcher | None
    ) -> list[tuple[bytes, Stat] | None]:
        def write(request: Writer) -> None:
            request.byte(watcher is not None).count(len(paths))
            for path in paths:
                request.text(path)

        def read(reader: Reader) -> list[tuple[bytes, Stat] | None]:
            nodes: list[tuple[bytes, Stat] | None] = []
            for path in paths[: reader.count()]:
                if reader.byte():
                    self._watch(WatchKind.DATA, path, watcher)
                    nodes.append((reader.data(), reader.stat()))
                else:
                    nodes.append(None)
            if not nodes:
                raise BadMessage("an answer has none of the nodes")
            return nodes

        return await self._ask(Kind.GET_ALL, write, read)

    async def children(self, path: str, watcher: Watcher | None = None) -> tuple[list[str], Stat]:
        def found(reader: Reader) -> tuple[list[str], Stat]:
            self._watch(WatchKind.CHILDREN, path, watcher)
            stat = reader.stat()
            return [reader.text() for _ in range(reader.count())], stat

        return await self._read(Kind.CHILDREN, path, watcher, found)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        self._check_connected()
        validate_count(operations)
        return await self._ask(
            Kind.MULTI, lambda request: write_operations(request, operations), read_results
        )

    async def close(self) -> None:
        """The connection ends when the other side has removed what the session owns."""
        if self._state is SessionState.CONNECTED and self._transport is not None:
            self._transport.write(Writer(Kind.CLOSE, self._next_id()).frame())
            self._end(SessionState.CLOSED)
        if self._transport is not None:
            await asyncio.wait([self._ended], timeout=CLOSING_TIMEOUT_S)
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                self._receive(Reader(body))
        except BadMessage as error:
            self._loop.call_exception_handler(
                {"message": "the process that has the store sent something wrong", "exception": error}
            )
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self._ended.done():
            self._ended.set_result(None)
        if self._state is SessionState.CONNECTED:
            self._end(SessionState.EXPIRED)

    def _receive(self, reader: Reader) -> None:
        if self._state is not SessionState.CONNECTED:
            return
        match reader.kind:
            case Kind.EVENT:
                event = read_event(reader)
                reader.end()
                self.fire(event)
            case Kind.STATE:
                self.tell(read_state(reader))
            case Kind.RESULT | Kind.REFUSED:
                done = self._answers.pop(reader.request_id, None)
                if done is None:
                    raise BadMessage(f"there is no request {reader.request_id} to answer")
                done(reader if reader.kind is Kind.RESULT else read_error(reader))
            case other:
                raise BadMessage(f"{other.name} is no answer")

    async def _read(self, kind: Kind, path: str, watcher: Watcher | None, read: Callable[[Reader], T]) -> T:
        validate_path(path)
        return await self._ask(kind, lambda request: request.text(path).byte(watcher is not None), read)

    async def _ask(self, kind: Kind, write: Callable[[Writer], object], read: Callable[[Reader], T]) -> T:
        """`read` is called when the answer arrives, before anything that follows it is looked at."""
        async with self._slots:
            self._check_connected()
            assert self._transport is not None
            writer = Writer(kind, self._next_id())
            write(writer)
            try:
                frame = writer.frame()
            except BadMessage as error:
                raise BadArguments(str(error)) from None
            future: asyncio.Future[T] = self._loop.create_future()

            def done(answer: Reader | StoreError) -> None:
                try:
                    if isinstance(answer, StoreError):
                        raise answer
                    result = read(answer)
                    answer.end()
                except StoreError as error:
                    # The caller may have been cancelled.
                    if not future.done():
                        future.set_exception(error)
                    if isinstance(error, BadMessage):
                        raise
                else:
                    if not future.done():
                        future.set_result(result)

            self._answers[writer.request_id] = done
            self._transport.write(frame)
            return await future

    def _next_id(self) -> int:
        self._last_request_id = (self._last_request_id + 1) & 0xFFFFFFFF
        return self._last_request_id

    def _watch(self, kind: WatchKind, path: str, watcher: Watcher | None) -> None:
        if watcher is not None:
            self.watches.add(kind, path, watcher)

    def _ping(self) -> None:
        if self._state is not SessionState.CONNECTED or self._transport is None:
            return
        if self._unanswered_pings > PINGS_A_TIMEOUT:
            self.abort()
            return
        self._unanswered_pings += 1
        writer = Writer(Kind.PING, self._next_id())
        self._answers[writer.request_id] = self._on_pong
        self._transport.write(writer.frame())
        self._pinging = self._loop.call_later(self._timeout_ms / 1_000 / PINGS_A_TIMEOUT, self._ping)

    def _on_pong(self, answer: Reader | StoreError) -> None:
        self._unanswered_pings = 0

    def _end(self, state: SessionState) -> None:
        self._state = state
        if self._pinging is not None:
            self._pinging.cancel()
        self.watches.clear()
        answers, self._answers = self._answers, {}
        for done in answers.values():
            done(self._over())
        self.tell(state)

    def _over(self) -> SessionExpired:
        return SessionExpired(f"session {self._session_id:#x} is over")

    def _check_connected(self) -> None:
        if self._state is not SessionState.CONNECTED:
            raise SessionExpired(f"session {self._session_id:#x} is {self._state.name.lower()}")
