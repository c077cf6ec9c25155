"""Engines of the store contract, as its tests need them. A test runs once for each engine there is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from kazoo.client import KazooClient

from barnabas.clock import SystemClock
from barnabas.coordination.store.contract import SessionState, Store, WatchEvent
from barnabas.coordination.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.coordination.store.socket_server import StoreServer
from barnabas.coordination.store.socket_store import SocketSession, SocketStore
from barnabas.coordination.store.zookeeper import ZooKeeperSession, ZooKeeperStore
from barnabas.coordination.store.zookeeper_client import ZooKeeperSettings

# A wait that lasts this long is a failure, never a slow machine.
PATIENCE_S = 120.0


class Engine(Protocol):
    """A store that holds one empty node for the test to work under."""

    @property
    def root(self) -> str: ...

    async def connect(self) -> Store: ...

    async def expire(self, session: Store) -> None:
        """Makes the store end a session that did not close."""


class EmbeddedEngine:
    root = "/contract"

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    async def connect(self) -> Store:
        return await self._store.connect()

    async def expire(self, session: Store) -> None:
        assert isinstance(session, EmbeddedSession)
        await session.expire()


@asynccontextmanager
async def embedded_engine(directory: Path) -> AsyncIterator[Engine]:
    store = await EmbeddedStore.open([str(directory)], clock=SystemClock())
    try:
        engine = EmbeddedEngine(store)
        session = await engine.connect()
        await session.create(engine.root)
        await session.close()
        yield engine
    finally:
        await store.close()


class SocketEngine:
    """A store that is served over sockets, in the same event loop."""

    root = "/contract"

    def __init__(self, server: StoreServer, door: socket.socket, *, session_timeout_ms: int) -> None:
        self.server = server
        self.door = door
        self._store = SocketStore(door, session_timeout_ms=session_timeout_ms)

    async def connect(self) -> Store:
        return await self._store.connect()

    async def expire(self, session: Store) -> None:
        assert isinstance(session, SocketSession)
        expired = asyncio.get_running_loop().create_future()

        def note(state: SessionState) -> None:
            if state is SessionState.EXPIRED:
                expired.set_result(None)

        session.add_session_listener(note)
        self.server.cut_off(session.session_id)
        await expired


@asynccontextmanager
async def socket_engine(directory: Path, *, session_timeout_ms: int = 60_000) -> AsyncIterator[SocketEngine]:
    store = await EmbeddedStore.open([str(directory)], clock=SystemClock())
    inside, outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with inside, outside:
        server = StoreServer(store, inside)
        server.start()
        try:
            engine = SocketEngine(server, outside, session_timeout_ms=session_timeout_ms)
            session = await engine.connect()
            await session.create(engine.root)
            await session.close()
            yield engine
        finally:
            await server.close()
            await store.close()


class ZooKeeperEngine:
    """A node of its own under the root of the server that all tests share."""

    def __init__(self, addresses: str) -> None:
        self.root = f"/contract-{uuid4().hex}"
        self._addresses = addresses
        self._sessions: list[ZooKeeperSession] = []

    async def connect(self) -> Store:
        settings = ZooKeeperSettings(connect=self._addresses, session_timeout_ms=6_000)
        session = await ZooKeeperStore(settings).connect()
        self._sessions.append(session)
        return session

    async def expire(self, session: Store) -> None:
        """The server ends a session when a second connection of it says that it closes."""
        assert isinstance(session, ZooKeeperSession)
        loop = asyncio.get_running_loop()
        expired = loop.create_future()

        def note(state: SessionState) -> None:
            if state is SessionState.EXPIRED:
                expired.set_result(None)

        session.add_session_listener(note)
        await loop.run_in_executor(None, self._close_elsewhere, session.identity)
        await expired

    def _close_elsewhere(self, identity: tuple[int, bytes]) -> None:
        client = KazooClient(self._addresses, client_id=identity)
        client.start()
        client.stop()
        client.close()

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()


@asynccontextmanager
async def zookeeper_engine(addresses: str) -> AsyncIterator[Engine]:
    engine = ZooKeeperEngine(addresses)
    try:
        session = await engine.connect()
        await session.create(engine.root)
        await session.close()
        yield engine
    finally:
        await engine.close()


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario, PATIENCE_S)

    asyncio.run(bounded())


class Recorder:
    """A watcher that keeps what it was told."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[WatchEvent] = asyncio.Queue()

    def __call__(self, event: WatchEvent) -> None:
        self._events.put_nowait(event)

    @property
    def is_called(self) -> bool:
        return not self._events.empty()

    async def next(self) -> tuple[str, str]:
        event = await self._events.get()
        return event.type.name, event.path

    async def all_after(self, session: Store, root: str) -> list[tuple[str, str]]:
        """Everything so far: a session hears of all changes before the answer to its own later write."""
        await session.set(root, b"fence")
        events = []
        while not self._events.empty():
            events.append(await self.next())
        return events
