"""The session that a broker has with its store now.

The parts of a broker keep this object for as long as they run. When the session expires, it opens the next one, and
tries until it has it. Then the hooks run, one after the other, in the order in which they were added; that is the order
in which the broker has started its parts: settings, registration, election. A hook may run again, so it must not
depend on how far it came before.

Reads that the end of a session has interrupted are repeated in the next one. Writes are not, because they may have
taken effect: they raise SessionExpired. Operations wait while the store cannot be reached, until `stop_waiting`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from barnabas.coordination.store.contract import (
    ANY_VERSION,
    CreateMode,
    Operation,
    OperationResult,
    SessionExpired,
    SessionListener,
    SessionState,
    Stat,
    Store,
    StoreEngine,
    StoreError,
    Watcher,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
RenewalHook: TypeAlias = Callable[[], Awaitable[None]]

RETRY_DELAY_S: Final = 1.0


class RenewedStore:
    """A `Store` with one session after the other."""

    def __init__(self, engine: StoreEngine, session: Store, on_failure: Callable[[Exception], None]) -> None:
        self._engine = engine
        self._on_failure = on_failure
        self._hooks: list[RenewalHook] = []
        self._listeners: list[SessionListener] = []
        # Set while there is a session, and when there will be none any more.
        self._may_proceed = asyncio.Event()
        self._is_closed = False
        self._no_waiting = False
        self._connecting: asyncio.Task[None] | None = None
        self._has_new_session = False
        # How often the connection was made, or was lost; how often a session has expired.
        self.connects = 0
        self.disconnects = 0
        self.expires = 0
        self._renewing: asyncio.Task[None] | None = None
        self._begin(session)

    @classmethod
    async def open(cls, engine: StoreEngine, on_failure: Callable[[Exception], None]) -> RenewedStore:
        """Opens the first session. Raises StoreError.

        `on_failure` gets the error of a hook that is not the store's: the broker cannot go on as it was.
        """
        return cls(engine, await engine.connect(), on_failure)

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def state(self) -> SessionState:
        return self._state

    def on_renewed(self, hook: RenewalHook) -> None:
        """Runs the hook in each later session, after those that were added before."""
        self._hooks.append(hook)

    async def create(self, path: str, data: bytes = b"", *, mode: CreateMode = CreateMode.PERSISTENT) -> str:
        return await (await self._current()).create(path, data, mode=mode)

    async def exists(self, path: str, watcher: Watcher | None = None) -> Stat | None:
        return await self._read(lambda session: session.exists(path, watcher))

    async def get(self, path: str, watcher: Watcher | None = None) -> tuple[bytes, Stat]:
        return await self._read(lambda session: session.get(path, watcher))

    async def get_all(
        self, paths: Sequence[str], watcher: Watcher | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        return await self._read(lambda session: session.get_all(paths, watcher))

    async def children(self, path: str, watcher: Watcher | None = None) -> tuple[list[str], Stat]:
        return await self._read(lambda session: session.children(path, watcher))

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
        return await (await self._current()).set(path, data, version=version)

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        await (await self._current()).delete(path, version=version)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        return await (await self._current()).multi(operations)

    def add_session_listener(self, listener: SessionListener) -> None:
        """The listener hears of this session and of all later ones."""
        self._listeners.append(listener)

    async def stop_waiting(self) -> None:
        """From now on, operations fail where they would wait for the store to come back."""
        self._no_waiting = True
        if self._state is not SessionState.CONNECTED:
            await self._end()

    async def close(self) -> None:
        """Ends the session and closes the engine."""
        await self._end()
        await self._engine.close()

    async def _end(self) -> None:
        self._is_closed = True
        self._may_proceed.set()
        tasks = [each for each in (self._connecting, self._renewing) if each is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._session.close()

    def _begin(self, session: Store) -> None:
        self.connects += 1
        self._session = session
        self._state = SessionState.CONNECTED
        session.add_session_listener(partial(self._on_state, session))
        self._may_proceed.set()

    async def _current(self) -> Store:
        while not self._may_proceed.is_set():
            await self._may_proceed.wait()
        if self._is_closed:
            raise SessionExpired("the session with the store is closed")
        return self._session

    async def _read(self, read: Callable[[Store], Awaitable[T]]) -> T:
        while True:
            session = await self._current()
            try:
                return await read(session)
            except SessionExpired:
                # The engine may report the end a moment later.
                self._on_state(session, SessionState.EXPIRED)

    def _on_state(self, session: Store, state: SessionState) -> None:
        is_over = self._is_closed or self._state in (SessionState.EXPIRED, SessionState.CLOSED)
        if session is not self._session or (is_over and state is not SessionState.CLOSED):
            return
        self._state = state
        if state is SessionState.CONNECTED:
            self.connects += 1
        elif state is SessionState.SUSPENDED:
            self.disconnects += 1
        if state is SessionState.EXPIRED:
            self.expires += 1
            log.warning("The session with the store has expired. Opening a new one")
            self._may_proceed.clear()
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        elif state is SessionState.SUSPENDED and self._no_waiting:
            self._connecting = asyncio.get_running_loop().create_task(self._give_up())
        for listener in list(self._listeners):
            listener(state)

    async def _give_up(self) -> None:
        self._connecting = None
        await self._end()

    async def _connect(self) -> None:
        while True:
            try:
                session = await self._engine.connect()
            except StoreError as error:
                log.warning("There is no new session with the store yet: %s", error)
                await asyncio.sleep(RETRY_DELAY_S)
            except Exception as error:
                self._on_failure(error)
                return
            else:
                break
        self._connecting = None
        self._begin(session)
        log.info("There is a new session with the store")
        self._has_new_session = True
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        """Runs the hooks until they have succeeded in the session of that moment."""
        try:
            while self._has_new_session:
                self._has_new_session = False
                try:
                    for hook in list(self._hooks):
                        await hook()
                except StoreError as error:
                    log.warning("The broker is not back in its place yet: %s", error)
                    self._has_new_session = True
                    await asyncio.sleep(RETRY_DELAY_S)
        except Exception as error:
            self._on_failure(error)
        finally:
            self._renewing = None
