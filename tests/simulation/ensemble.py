"""A simulated ZooKeeper ensemble: one tree, and sessions that lose their connection and expire.

A session's requests arrive in order, after delays of the seed. Answers and watch events come back in one order, so that
a session sees no change before its watchers do. The ensemble does not hear of the sessions of a process that is killed,
paused or cut off, and ends them after their time-out; a process that returns in time has its session again.

A write may have taken effect when the connection is lost before its answer: it raises StoreUnavailable. Reads are sent
again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.coordination.store.contract import (
    ANY_VERSION,
    Create,
    CreateMode,
    Delete,
    MultiFailed,
    NoNode,
    Operation,
    OperationResult,
    SessionExpired,
    SessionListener,
    SessionState,
    SetData,
    Stat,
    StoreError,
    StoreUnavailable,
    Watcher,
    WatchEvent,
    name_of,
    parent_of,
)
from barnabas.coordination.store.transaction import ROOT, Node, Transaction
from barnabas.coordination.store.watches import WatchKind, WatchTable
from tests.simulation.world import START_MS, Process, World

DELAY_S_MAX: Final = 0.01

# Called for each change of a node, with None for one that is removed.
OnChange = Callable[[str, Node | None], None]


class SimulatedEnsemble:
    def __init__(self, world: World, *, session_timeout_s: float) -> None:
        self.tree: dict[str, Node] = {"/": ROOT}
        self.on_change: OnChange = lambda path, node: None
        self.world = world
        self._session_timeout_s = session_timeout_s
        self._children: dict[str, set[str]] = {"/": set()}
        self._sessions: dict[int, SimulatedSession] = {}
        # Sessions whose processes have not heard of their end, too.
        self._known: list[SimulatedSession] = []
        self._zxid = 0
        self._last_session_id = 0
        # Names of processes that cannot reach the ensemble.
        self._cut_off: set[str] = set()

    def engine(self, process: Process) -> SimulatedEngine:
        return SimulatedEngine(self, process)

    def cut_off(self, name: str) -> None:
        """The process of this name and the ensemble do not reach each other any more."""
        self._cut_off.add(name)
        self._note_reach(name)

    def reconnect(self, name: str) -> None:
        self._cut_off.discard(name)
        self._note_reach(name)

    def note_pause(self, name: str) -> None:
        """The process of this name was paused or goes on."""
        self._note_reach(name)

    def expire(self, name: str) -> None:
        """Ends the sessions of a process at once."""
        for session in [*self._sessions.values()]:
            if session.process.name == name:
                self.end(session)

    def can_reach(self, process: Process) -> bool:
        return process.is_alive and not process.is_paused and process.name not in self._cut_off

    def _note_reach(self, name: str) -> None:
        self._known = [session for session in self._known if not session.is_over and session.process.is_alive]
        for session in self._known:
            if session.process.name == name:
                self.check(session)

    def open(self, process: Process) -> SimulatedSession:
        self._last_session_id += 1
        session = SimulatedSession(self, process, self._last_session_id)
        self._sessions[session.session_id] = session
        self._known.append(session)
        process.on_kill.append(lambda: self.check(session))
        return session

    def check(self, session: SimulatedSession) -> None:
        """Compares the session with whether its process can be reached now."""
        is_reachable = self.can_reach(session.process)
        if is_reachable == session.is_connected:
            return
        if is_reachable:
            session.resume(is_alive=session.session_id in self._sessions)
            return
        session.suspend()
        lost = session.losses

        def end_if_lost() -> None:
            if session.losses == lost and not session.is_connected:
                self.end(session)

        self.world.call_at(self.world.now_s + self._session_timeout_s, end_if_lost)

    def end(self, session: SimulatedSession) -> None:
        """Ends the session by the ensemble's word."""
        self.remove(session)
        if session.is_connected:
            session.expired()

    def remove(self, session: SimulatedSession) -> None:
        """Removes the session and its ephemeral nodes."""
        if self._sessions.pop(session.session_id, None) is None:
            return
        owned = [path for path, node in self.tree.items() if node.ephemeral_owner == session.session_id]
        self.run(session.session_id, [Delete(path) for path in owned])
        session.watches.clear()

    def has(self, session: SimulatedSession) -> bool:
        return session.session_id in self._sessions

    def child_names(self, path: str) -> list[str]:
        return sorted(self._children[path])

    def run(self, owner: int, operations: Sequence[Operation]) -> list[OperationResult]:
        """All of the operations at one zxid. Raises MultiFailed."""
        now_ms = START_MS + int(self.world.now_s * 1_000)
        transaction = Transaction(self.tree, zxid=self._zxid + 1, now_ms=now_ms, owner=owner)
        results = []
        for index, operation in enumerate(operations):
            try:
                results.append(transaction.run(operation))
            except StoreError as error:
                raise MultiFailed(index, error) from error
        if transaction.changes:
            self._zxid += 1
            for path, node in transaction.changes.items():
                self._apply(path, node)
            for event, path in transaction.events:
                for session in self._sessions.values():
                    for watcher in session.watches.take(event, path):
                        session.report(watcher, WatchEvent(type=event, path=path))
        return results

    def _apply(self, path: str, node: Node | None) -> None:
        if node is None:
            if self.tree.pop(path, None) is None:
                return
            del self._children[path]
            # A transaction may name a parent before its children.
            siblings = self._children.get(parent_of(path))
            if siblings is not None:
                siblings.discard(name_of(path))
        else:
            if path not in self.tree:
                self._children[path] = set()
                self._children[parent_of(path)].add(name_of(path))
            self.tree[path] = node
        self.on_change(path, node)


class SimulatedEngine:
    """The ensemble as one process sees it."""

    may_have_lost: Final = False

    def __init__(self, ensemble: SimulatedEnsemble, process: Process) -> None:
        self._ensemble = ensemble
        self._process = process

    async def connect(self) -> SimulatedSession:
        await asyncio.sleep(self._process.rng.random() * DELAY_S_MAX)
        if not self._ensemble.can_reach(self._process):
            await asyncio.sleep(1.0)
            raise StoreUnavailable("the ensemble cannot be reached")
        return self._ensemble.open(self._process)

    async def close(self) -> None: ...


@dataclass(slots=True)
class _Request:
    carry_out: Callable[[], Any]
    done: asyncio.Future[Any]
    is_write: bool
    # Counts connections: an answer belongs to the one that its request was sent on.
    connection: int = field(default=0)


class SimulatedSession:
    """A `Store` on the simulated ensemble."""

    def __init__(self, ensemble: SimulatedEnsemble, process: Process, session_id: int) -> None:
        self.process = process
        self.session_id = session_id
        self.watches = WatchTable()
        self.is_connected = True
        # How often the connection was lost.
        self.losses = 0
        self._ensemble = ensemble
        self._world = ensemble.world
        self._state = SessionState.CONNECTED
        self._listeners: list[SessionListener] = []
        # Sent and not answered, in order.
        self._sent: deque[_Request] = deque()
        # What the ensemble has to tell while the connection is down.
        self._unreported: list[Callable[[], None]] = []
        self._last_arrival_s = 0.0
        self._last_return_s = 0.0

    @property
    def is_over(self) -> bool:
        return self._state in (SessionState.EXPIRED, SessionState.CLOSED)

    async def create(self, path: str, data: bytes = b"", *, mode: CreateMode = CreateMode.PERSISTENT) -> str:
        return str(await self._run(Create(path, data, mode)))

    async def exists(self, path: str, watcher: Watcher | None = None) -> Stat | None:
        def carry_out() -> Stat | None:
            node = self._ensemble.tree.get(path)
            if watcher is not None:
                self.watches.add(WatchKind.ABSENT if node is None else WatchKind.DATA, path, watcher)
            return None if node is None else node.stat()

        found: Stat | None = await self._ask(carry_out)
        return found

    async def get(self, path: str, watcher: Watcher | None = None) -> tuple[bytes, Stat]:
        def carry_out() -> tuple[bytes, Stat]:
            node = self._node(path)
            if watcher is not None:
                self.watches.add(WatchKind.DATA, path, watcher)
            return node.data, node.stat()

        found: tuple[bytes, Stat] = await self._ask(carry_out)
        return found

    async def get_all(
        self, paths: Sequence[str], watcher: Watcher | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        async def get_if_there(path: str) -> tuple[bytes, Stat] | None:
            try:
                return await self.get(path, watcher)
            except NoNode:
                return None

        return list(await asyncio.gather(*map(get_if_there, paths)))

    async def children(self, path: str, watcher: Watcher | None = None) -> tuple[list[str], Stat]:
        def carry_out() -> tuple[list[str], Stat]:
            node = self._node(path)
            if watcher is not None:
                self.watches.add(WatchKind.CHILDREN, path, watcher)
            return self._ensemble.child_names(path), node.stat()

        found: tuple[list[str], Stat] = await self._ask(carry_out)
        return found

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
        result = await self._run(SetData(path, data, version))
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        await self._run(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        results: list[OperationResult] = await self._ask(
            lambda: self._ensemble.run(self.session_id, operations), is_write=True
        )
        return results

    def add_session_listener(self, listener: SessionListener) -> None:
        self._listeners.append(listener)

    async def close(self) -> None:
        if self._state is SessionState.CONNECTED:
            with contextlib.suppress(StoreError):
                await self._ask(lambda: self._ensemble.remove(self), is_write=True)
        if self._state in (SessionState.CONNECTED, SessionState.SUSPENDED):
            self._state = SessionState.CLOSED
            self._fail_all(SessionExpired(f"session {self.session_id} is closed"))
            self._tell(SessionState.CLOSED)

    async def _run(self, operation: Operation) -> OperationResult:
        try:
            (result,) = await self.multi([operation])
        except MultiFailed as failed:
            raise failed.error from None
        return result

    def _node(self, path: str) -> Node:
        node = self._ensemble.tree.get(path)
        if node is None:
            raise NoNode(path)
        return node

    async def _ask(self, carry_out: Callable[[], Any], *, is_write: bool = False) -> Any:
        if self.is_over:
            raise SessionExpired(f"session {self.session_id} is over")
        request = _Request(carry_out, asyncio.get_running_loop().create_future(), is_write)
        self._sent.append(request)
        # What is sent while the connection is down is sent again by `resume`.
        if self.is_connected:
            self._send(request)
        return await request.done

    def _send(self, request: _Request) -> None:
        request.connection = self.losses
        self._last_arrival_s = self._later(self._last_arrival_s)
        self._world.call_at(self._last_arrival_s, lambda: self._arrive(request))

    def _later(self, than_s: float) -> float:
        return max(than_s, self._world.now_s + self._world.rng.random() * DELAY_S_MAX)

    def _arrive(self, request: _Request) -> None:
        """At the ensemble. A request that was on its way when the connection broke may arrive or not."""
        is_lost = request.connection != self.losses
        if not self._ensemble.has(self) or (
            is_lost and (not request.is_write or self._world.rng.random() < 0.5)
        ):
            return
        result: Any = None
        error: StoreError | None = None
        try:
            result = request.carry_out()
        except StoreError as refused:
            error = refused
        if not is_lost:
            self._return(lambda: self._complete(request, result, error))

    def report(self, watcher: Watcher, event: WatchEvent) -> None:
        self._return(lambda: watcher(event))

    def _return(self, action: Callable[[], None]) -> None:
        """Has the process do something, after all that the ensemble has told it before."""

        def arrive() -> None:
            if self.is_connected and self._state is SessionState.CONNECTED:
                self.process.loop.call_soon(self._do, action)
            else:
                # The next connection brings it, if there is one: a client sets its watches again.
                self._unreported.append(action)

        self._last_return_s = self._later(self._last_return_s)
        self._world.call_at(self._last_return_s, arrive)

    def _do(self, action: Callable[[], None]) -> None:
        if self._state in (SessionState.CONNECTED, SessionState.SUSPENDED):
            action()

    def _complete(self, request: _Request, result: Any, error: StoreError | None) -> None:
        if request not in self._sent:
            return
        self._sent.remove(request)
        if request.done.done():
            return
        if error is None:
            request.done.set_result(result)
        else:
            request.done.set_exception(error)

    def suspend(self) -> None:
        """The connection is lost."""
        self.is_connected = False
        self.losses += 1
        if self.process.is_alive:
            self.process.loop.call_soon(self._on_suspended)

    def _on_suspended(self) -> None:
        if self._state is not SessionState.CONNECTED:
            return
        self._state = SessionState.SUSPENDED
        lost = [request for request in self._sent if request.is_write and request.connection < self.losses]
        for request in lost:
            self._complete(request, None, StoreUnavailable("the connection was lost during an operation"))
        self._tell(SessionState.SUSPENDED)

    def resume(self, *, is_alive: bool) -> None:
        """There is a connection again, and the ensemble says whether the session is."""
        self.is_connected = True
        if not is_alive:
            self.expired()
            return
        self.process.loop.call_soon(self._on_suspended)
        self.process.loop.call_soon(self._on_resumed)

    def _on_resumed(self) -> None:
        if self._state is not SessionState.SUSPENDED or not self.is_connected:
            return
        self._state = SessionState.CONNECTED
        unreported, self._unreported = self._unreported, []
        for action in unreported:
            action()
        self._tell(SessionState.CONNECTED)
        for request in [*self._sent]:
            self._send(request)

    def expired(self) -> None:
        self.process.loop.call_soon(self._on_expired)

    def _on_expired(self) -> None:
        if self.is_over:
            return
        self._state = SessionState.EXPIRED
        self._fail_all(SessionExpired(f"session {self.session_id} has expired"))
        self._tell(SessionState.EXPIRED)

    def _fail_all(self, error: StoreError) -> None:
        while self._sent:
            self._complete(self._sent[0], None, error)

    def _tell(self, state: SessionState) -> None:
        for listener in [*self._listeners]:
            listener(state)
