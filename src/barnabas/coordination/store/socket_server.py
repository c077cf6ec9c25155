"""Serves an embedded store to the brokers of this host: the other side of `socket_store`.

Requests of a session are answered in their order. Writes are given to the store as they arrive, so that the store can
commit many of them together; a read waits for the writes of its session before it. Events and answers are sent in the
order in which they come about.

Nothing here waits for a broker. A session is not read from while many of its requests wait, or while it does not read
its answers. A session that sends nothing for its time-out, or does not read for that long, is cut off. Its ephemeral
nodes are removed then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from typing import Final

from barnabas.coordination.store.contract import (
    OperationResult,
    SessionState,
    StoreError,
    StoreUnavailable,
    Watcher,
    WatchEvent,
)
from barnabas.coordination.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.coordination.store.socket_messages import (
    ANSWER_BYTES,
    BadMessage,
    FrameSplitter,
    Kind,
    Reader,
    Writer,
    event_frame,
    read_operations,
    state_frame,
    write_error,
    write_results,
)

log = logging.getLogger(__name__)

# Of one session. A session that has as many is not read from.
WAITING_MAX: Final = 1_000
UNSENT_BYTES_MAX: Final = 1 << 20
CONNECTIONS_AT_ONCE: Final = 100
# The least and the greatest time-out that a broker may ask for.
TIMEOUTS_MS: Final = (10, 3_600_000)
_DOOR_BYTES: Final = 64


class StoreServer:
    """The sessions of all brokers. It takes connections from the door from the first call of `start` on."""

    def __init__(self, store: EmbeddedStore, door: socket.socket) -> None:
        """`door` stays the caller's."""
        self._store = store
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._sessions: set[ServedSession] = set()
        self._opening: set[asyncio.Task[object]] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def start(self) -> None:
        self._door.setblocking(False)
        self._loop.add_reader(self._door, self._accept)

    async def wait_until_empty(self) -> None:
        """Until no session is left."""
        await self._is_empty.wait()

    async def close(self) -> None:
        """Cuts off all sessions. The store is the caller's."""
        self._loop.remove_reader(self._door)
        for session in list(self._sessions):
            session.cut_off()
        await self._is_empty.wait()

    def cut_off(self, session_id: int) -> None:
        for session in list(self._sessions):
            if session.session_id == session_id:
                session.cut_off()

    def _accept(self) -> None:
        for _ in range(CONNECTIONS_AT_ONCE):
            try:
                _, descriptors, _, _ = socket.recv_fds(self._door, _DOOR_BYTES, 1)
            except (BlockingIOError, InterruptedError):
                return
            for each in descriptors:
                self._serve(socket.socket(fileno=each))

    def _serve(self, connection: socket.socket) -> None:
        session = ServedSession(self._store, self._loop)
        self._sessions.add(session)
        self._is_empty.clear()
        task = self._loop.create_task(self._run(session, connection))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _run(self, session: ServedSession, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                await self._loop.create_unix_connection(lambda: session, sock=connection)
                await session.run()
        finally:
            self._sessions.discard(session)
            if not self._sessions:
                self._is_empty.set()


class ServedSession(asyncio.Protocol):
    """One connection of a broker. It is a session of the store from its first request on."""

    def __init__(self, store: EmbeddedStore, loop: AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._frames = FrameSplitter()
        self._session: EmbeddedSession | None = None
        self._requests: deque[Reader] = deque()
        self._has_requests = asyncio.Event()
        # Writes that the store has, in their order.
        self._writes: deque[tuple[int, asyncio.Task[list[OperationResult]]]] = deque()
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._is_lost = False
        self._tick_s = 0.0
        self._silent_ticks = 0
        self._ticks_max = 0
        self._ticking: TimerHandle | None = None

    @property
    def session_id(self) -> int:
        return 0 if self._session is None else self._session.session_id

    async def run(self) -> None:
        """Serves the connection until its end, then ends the session."""
        try:
            while not self._is_lost:
                await self._has_requests.wait()
                await self._may_send.wait()
                if not self._requests:
                    self._has_requests.clear()
                elif not await self._answer(self._requests.popleft()):
                    break
                self._read_on()
        except BadMessage as error:
            log.error("A broker sent something wrong to the store, and is cut off: %s", error)
        finally:
            await self._end()

    async def _end(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        await self._finish_writes()
        if self._session is not None:
            try:
                await self._session.expire()
            except StoreError as error:
                log.error("The nodes of a broker that has gone could not be removed: %s", error)
        if self._transport is not None:
            # The end of the connection tells the broker that it is done.
            self._transport.close()

    def cut_off(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        self._silent_ticks = 0
        try:
            for body in self._frames.feed(data):
                reader = Reader(body)
                if reader.kind is Kind.PING:
                    # It asks whether this process runs, not whether it is done with the requests before.
                    self._send(Writer(Kind.RESULT, reader.request_id).frame())
                else:
                    self._requests.append(reader)
        except BadMessage as error:
            log.error("A broker sent something wrong to the store, and is cut off: %s", error)
            self.cut_off()
            return
        if self._requests:
            self._has_requests.set()
        if self._waiting >= WAITING_MAX and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._is_lost = True
        self._has_requests.set()
        self._may_send.set()

    def pause_writing(self) -> None:
        self._may_send.clear()

    def resume_writing(self) -> None:
        self._silent_ticks = 0
        self._may_send.set()

    @property
    def _waiting(self) -> int:
        return len(self._requests) + len(self._writes)

    def _read_on(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_reading() and self._waiting < WAITING_MAX // 2:
            transport.resume_reading()

    def _tick(self) -> None:
        """Counts for how long the broker has been silent. A process that was stopped itself counts one tick only."""
        transport = self._transport
        if transport is None:
            return
        if transport.is_reading() or not self._may_send.is_set():
            self._silent_ticks += 1
        if self._silent_ticks > self._ticks_max:
            log.warning(
                "Session %#x has been silent for %.1f s, and is over",
                self.session_id,
                self._tick_s * self._ticks_max,
            )
            self.cut_off()
            return
        self._ticking = self._loop.call_later(self._tick_s, self._tick)

    async def _answer(self, request: Reader) -> bool:
        """Returns whether the session goes on. Raises BadMessage."""
        if request.kind is Kind.OPEN:
            await self._open(request)
            return True
        session = self._session
        if session is None:
            raise BadMessage(f"{request.kind.name} before OPEN")
        if request.kind is Kind.MULTI:
            operations = read_operations(request)
            request.end()
            task = self._loop.create_task(session.multi(operations))
            self._writes.append((request.request_id, task))
            task.add_done_callback(lambda _: self._answer_writes())
            # The store takes what it can before the next request is looked at.
            await asyncio.sleep(0)
            return True
        await self._finish_writes()
        if request.kind is Kind.CLOSE:
            await session.close()
            return False
        try:
            answer = await self._read(session, request)
        except BadMessage:
            raise
        except StoreError as error:
            self._refuse(request.request_id, error)
        else:
            request.end()
            self._send(answer.frame())
        return True

    async def _open(self, request: Reader) -> None:
        timeout_ms, pings = request.long(), request.long()
        request.end()
        least_ms, greatest_ms = TIMEOUTS_MS
        if self._session is not None or not least_ms <= timeout_ms <= greatest_ms or not 1 <= pings <= 100:
            raise BadMessage("OPEN does not fit")
        self._session = await self._store.connect()
        self._session.add_session_listener(self._tell)
        self._tick_s, self._ticks_max = timeout_ms / 1_000 / pings, pings
        self._ticking = self._loop.call_later(self._tick_s, self._tick)
        answer = Writer(Kind.RESULT, request.request_id)
        self._send(answer.long(self._session.session_id).byte(self._store.may_have_lost).frame())

    async def _read(self, session: EmbeddedSession, request: Reader) -> Writer:
        # None of these waits, so that no event comes between what is read and its answer.
        answer = Writer(Kind.RESULT, request.request_id)
        match request.kind:
            case Kind.EXISTS:
                path = request.text()
                stat = await session.exists(path, self._watcher(request))
                if stat is None:
                    answer.byte(0)
                else:
                    answer.byte(1).stat(stat)
            case Kind.GET:
                path = request.text()
                data, stat = await session.get(path, self._watcher(request))
                answer.data(data).stat(stat)
            case Kind.CHILDREN:
                path = request.text()
                names, stat = await session.children(path, self._watcher(request))
                answer.stat(stat).count(len(names))
                for name in names:
                    answer.text(name)
            case Kind.GET_ALL:
                await self._read_many(session, request, answer)
            case other:
                raise BadMessage(f"{other.name} is no request")
        return answer

    async def _read_many(self, session: EmbeddedSession, request: Reader, answer: Writer) -> None:
        """As many of the nodes as an answer should have, and at least one."""
        watcher = self._watcher(request)
        paths = [request.text() for _ in range(request.count())]
        found = []
        size_bytes = 0
        for path in paths:
            found += await session.get_all([path], watcher)
            size_bytes += len(found[-1][0]) if found[-1] is not None else 0
            if size_bytes > ANSWER_BYTES:
                break
        answer.count(len(found))
        for node in found:
            if node is None:
                answer.byte(0)
            else:
                answer.byte(1).data(node[0]).stat(node[1])

    async def _finish_writes(self) -> None:
        while self._writes:
            await asyncio.wait([self._writes[-1][1]])
            self._answer_writes()

    def _answer_writes(self) -> None:
        while self._writes and self._writes[0][1].done():
            request_id, task = self._writes.popleft()
            error = task.exception()
            if error is None:
                answer = Writer(Kind.RESULT, request_id)
                write_results(answer, task.result())
                self._send(answer.frame())
            elif isinstance(error, StoreError):
                self._refuse(request_id, error)
            else:
                log.error("A change of the store failed", exc_info=error)
                self._refuse(request_id, StoreUnavailable(f"{type(error).__name__}: {error}"))
        self._read_on()

    def _refuse(self, request_id: int, error: StoreError) -> None:
        answer = Writer(Kind.REFUSED, request_id)
        write_error(answer, error)
        self._send(answer.frame())

    def _watcher(self, request: Reader) -> Watcher | None:
        return self._on_event if request.byte() else None

    def _on_event(self, event: WatchEvent) -> None:
        self._send(event_frame(event))

    def _tell(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self._send(state_frame(state))

    def _send(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)
