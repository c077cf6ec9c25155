"""What the sessions of all engines have in common: single operations, and calls to watchers and listeners."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import TypeVar

from barnabas.coordination.store.contract import (
    ANY_VERSION,
    Create,
    CreateMode,
    Delete,
    MultiFailed,
    Operation,
    OperationResult,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
)
from barnabas.coordination.store.watches import WatchTable

T = TypeVar("T")


class EngineSession(ABC):
    """The base of a `Store`: an engine adds `multi`, the reads, and the end of the session."""

    __slots__ = ("_listeners", "_loop", "watches")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._listeners: list[SessionListener] = []
        self.watches = WatchTable()

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]: ...

    async def create(self, path: str, data: bytes = b"", *, mode: CreateMode = CreateMode.PERSISTENT) -> str:
        result = await self._run(Create(path, data, mode))
        assert isinstance(result, str)
        return result

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
        result = await self._run(SetData(path, data, version))
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        await self._run(Delete(path, version))

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    def tell(self, state: SessionState) -> None:
        """Calls the session's listeners."""
        for listener in list(self._listeners):
            self._call_out(listener, state, "a session listener")

    def fire(self, event: WatchEvent) -> None:
        """Calls the watchers of an event; their watches are used up."""
        for watcher in self.watches.take(event.type, event.path):
            self._call_out(watcher, event, f"a watcher of {event.path}")

    async def _run(self, operation: Operation) -> OperationResult:
        try:
            (result,) = await self.multi([operation])
        except MultiFailed as failed:
            raise failed.error from None
        return result

    def _call_out(self, callback: Callable[[T], None], argument: T, name: str) -> None:
        """Calls code from outside, whose failure must not disturb the store or its other listeners."""
        try:
            callback(argument)
        except Exception as error:
            self._loop.call_exception_handler({"message": f"{name} failed", "exception": error})
