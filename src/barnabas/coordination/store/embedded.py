"""The store inside a single node: the contract of `store` on a journal.

The whole tree is in memory, twice: `head` has every accepted change, and new operations are checked against it;
`committed` has the state on disk, and only that is read and watched. The two share their nodes, which never change.
Operations run on the event loop; a thread commits them in order. When a commit is on the disk, the loop makes its
operations visible, then their watches fire, then their callers continue. Operations that arrive while a commit runs
share the next one.

When a commit fails, `head` is ahead of the disk by an unknown amount: the store accepts no further operation.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from typing import Final

from barnabas.clock import Clock
from barnabas.coordination.store.contract import (
    Delete,
    EventType,
    MultiFailed,
    NoNode,
    Operation,
    OperationResult,
    SessionExpired,
    SessionState,
    Stat,
    StoreError,
    StoreUnavailable,
    Watcher,
    WatchEvent,
    name_of,
    parent_of,
    validate_count,
    validate_path,
)
from barnabas.coordination.store.journal import EPOCH_SHIFT, Journal
from barnabas.coordination.store.session import EngineSession
from barnabas.coordination.store.transaction import Node, Transaction
from barnabas.coordination.store.watches import WatchKind
from barnabas.log.file_system import DiskFileSystem, FileSystem
from barnabas.primitives.executors import NewExecutor, new_threads
from barnabas.value import Value

PENDING_MAX: Final = 1000
BATCH_MAX: Final = 1000


class _Pending(Value):
    transaction: Transaction
    done: asyncio.Future[None]


class EmbeddedStore:
    """The tree and its disk. Sessions come from `connect`."""

    def __init__(self, journal: Journal, clock: Clock, executor: Executor) -> None:
        """`executor` has one thread: it is the one that uses the journal."""
        self._journal = journal
        self._clock = clock
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._head: dict[str, Node] = {}
        self._committed: dict[str, Node] = {}
        self._children: dict[str, set[str]] = {}
        self._ephemerals: dict[int, set[str]] = {}
        self._sessions: dict[int, EmbeddedSession] = {}
        self._last_session_id = 0
        self._zxid = 0
        self._failure: StoreUnavailable | None = None
        self._slots = asyncio.Semaphore(PENDING_MAX)
        # Accepted, and not yet on the disk; bounded by the slots.
        self._pending: deque[_Pending] = deque()
        self._committing: asyncio.Future[None] | None = None
        self._is_closed = False

    @classmethod
    async def open(
        cls,
        directories: Sequence[str],
        *,
        clock: Clock,
        fs: FileSystem | None = None,
        accepted_losses: Collection[str] = (),
        new_executor: NewExecutor = new_threads,
        locks: bool = True,
    ) -> EmbeddedStore:
        """Opens or makes the store. Raises StoreUnavailable when it is in use, damaged or out of reach.

        `locks` is for disks that are not real.
        """
        journal = Journal(
            directories,
            fs or DiskFileSystem(),
            accepted_losses=accepted_losses,
            locks=locks,
            new_executor=new_executor,
        )
        store = cls(journal, clock, new_executor(1, "store-commit"))
        opening = store._loop.run_in_executor(store._executor, partial(journal.open, now_ms=clock.now_ms()))
        try:
            nodes, zxid = await opening
        except BaseException:
            store._executor.shutdown(wait=False)
            raise
        store._head = nodes
        store._committed = dict(nodes)
        store._children = {path: set() for path in nodes}
        for each in nodes:
            if each != "/":
                store._children[parent_of(each)].add(name_of(each))
        store._zxid = zxid
        store._last_session_id = zxid
        return store

    async def connect(self) -> EmbeddedSession:
        self._last_session_id += 1
        assert self._last_session_id >> EPOCH_SHIFT == self._zxid >> EPOCH_SHIFT
        session = EmbeddedSession(self, self._last_session_id, self._loop)
        self._sessions[session.session_id] = session
        return session

    async def close(self) -> None:
        """Ends every session, waits for operations in progress, and closes the file."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._failure is None:
            for session in list(self._sessions.values()):
                await session.close()
            self._failure = StoreUnavailable("the store is closed")
        while self._committing is not None:
            await asyncio.wait([self._committing])
        await self._loop.run_in_executor(self._executor, self._journal.close)
        self._executor.shutdown()

    @property
    def may_have_lost(self) -> bool:
        """Whether changes that were reported as stored may be missing."""
        return self._journal.may_have_lost

    def find(self, path: str) -> Node | None:
        return self._committed.get(path)

    def child_names(self, path: str) -> list[str]:
        return sorted(self._children[path])

    async def submit(self, owner: int, operations: Sequence[Operation]) -> list[OperationResult]:
        """Runs operations at one zxid and waits until they are on disk. Raises MultiFailed when one is refused."""
        async with self._slots:
            if self._failure is not None:
                raise StoreUnavailable(str(self._failure))
            return await self._accept(owner, operations)

    async def end_session(self, session: EmbeddedSession) -> None:
        """Removes what the session owns; it must take no more operations by now."""
        async with self._slots:
            if self._failure is None:
                owned = sorted(self._ephemerals.get(session.session_id, ()))
                await self._accept(session.session_id, [Delete(path) for path in owned])
        self._sessions.pop(session.session_id, None)

    async def _accept(self, owner: int, operations: Sequence[Operation]) -> list[OperationResult]:
        # From here to the queue nothing waits, so the order of zxids is the order of commits.
        transaction = Transaction(self._head, zxid=self._zxid + 1, now_ms=self._clock.now_ms(), owner=owner)
        results = []
        for index, operation in enumerate(operations):
            try:
                results.append(transaction.run(operation))
            except StoreError as error:
                await self._catch_up()
                raise MultiFailed(index, error) from error
        if not transaction.changes:
            await self._catch_up()
            return results
        self._zxid += 1
        for path, node in transaction.changes.items():
            self._apply_to_head(path, node)
        pending = _Pending(transaction, self._loop.create_future())
        self._pending.append(pending)
        if self._committing is None:
            self._commit()
        # A caller that is cancelled does not take its operation back.
        await asyncio.shield(pending.done)
        return results

    async def _catch_up(self) -> None:
        """Waits until all accepted changes can be read.

        A caller that was rejected because of a change must see that change: otherwise it would read the old version,
        try, and be rejected again for ever, and the loop would never see the commit.
        """
        if self._pending:
            await asyncio.shield(self._pending[-1].done)

    def _commit(self) -> None:
        """Makes the thread commit the waiting operations."""
        batch = [pending.transaction for pending in islice(self._pending, BATCH_MAX)]
        self._committing = self._loop.run_in_executor(self._executor, self._journal.commit, batch)
        self._committing.add_done_callback(partial(self._on_committed, len(batch)))

    def _on_committed(self, count: int, committing: asyncio.Future[None]) -> None:
        self._committing = None
        error = committing.exception()
        if error is not None:
            # Callers must get any error: nothing will commit their operations.
            self._fail(self._journal.unavailable(error))
            return
        self._publish(count)
        if self._pending and self._committing is None:
            self._commit()

    def _apply_to_head(self, path: str, node: Node | None) -> None:
        before = self._head.get(path)
        if before is not None and before.ephemeral_owner:
            owned = self._ephemerals[before.ephemeral_owner]
            owned.discard(path)
            if not owned:
                del self._ephemerals[before.ephemeral_owner]
        if node is None:
            self._head.pop(path, None)
            return
        self._head[path] = node
        if node.ephemeral_owner:
            self._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)

    def _publish(self, count: int) -> None:
        """The oldest `count` transactions are on disk."""
        for _ in range(count):
            pending = self._pending.popleft()
            for path, node in pending.transaction.changes.items():
                self._apply_to_committed(path, node)
            watching = [session for session in self._sessions.values() if session.watches]
            if watching:
                for event, path in pending.transaction.events:
                    self._notify(watching, event, path)
            if not pending.done.done():
                pending.done.set_result(None)

    def _apply_to_committed(self, path: str, node: Node | None) -> None:
        if node is not None:
            if path not in self._committed:
                self._children[path] = set()
                self._children[parent_of(path)].add(name_of(path))
            self._committed[path] = node
        # A node that one transaction created and removed was never visible; a parent may be removed before its
        # children.
        elif self._committed.pop(path, None) is not None:
            del self._children[path]
            siblings = self._children.get(parent_of(path))
            if siblings is not None:
                siblings.discard(name_of(path))

    def _notify(self, sessions: Sequence[EmbeddedSession], event: EventType, path: str) -> None:
        happened = WatchEvent(type=event, path=path)
        for session in sessions:
            session.fire(happened)

    def _fail(self, failure: StoreUnavailable) -> None:
        self._failure = failure
        while self._pending:
            done = self._pending.popleft().done
            if not done.done():
                done.set_exception(failure)
                # The caller may have been cancelled in the meantime; then no task retrieves the exception.
                done.exception()
        for session in list(self._sessions.values()):
            session.tell(SessionState.SUSPENDED)


class EmbeddedSession(EngineSession):
    """A `Store` on an embedded store. It lasts until it is closed: within one process nothing gets out of touch."""

    __slots__ = ("_session_id", "_state", "_store")

    def __init__(self, store: EmbeddedStore, session_id: int, loop: AbstractEventLoop) -> None:
        super().__init__(loop)
        self._store = store
        self._session_id = session_id
        self._state = SessionState.CONNECTED

    @property
    def session_id(self) -> int:
        return self._session_id

    async def exists(self, path: str, watcher: Watcher | None = None) -> Stat | None:
        node = self._find(path)
        if watcher is not None:
            self.watches.add(WatchKind.ABSENT if node is None else WatchKind.DATA, path, watcher)
        return None if node is None else node.stat()

    async def get(self, path: str, watcher: Watcher | None = None) -> tuple[bytes, Stat]:
        node = self._find(path)
        if node is None:
            raise NoNode(path)
        if watcher is not None:
            self.watches.add(WatchKind.DATA, path, watcher)
        return node.data, node.stat()

    async def get_all(
        self, paths: Sequence[str], watcher: Watcher | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        found: list[tuple[bytes, Stat] | None] = []
        for path in paths:
            node = self._find(path)
            if node is not None and watcher is not None:
                self.watches.add(WatchKind.DATA, path, watcher)
            found.append(None if node is None else (node.data, node.stat()))
        return found

    async def children(self, path: str, watcher: Watcher | None = None) -> tuple[list[str], Stat]:
        node = self._find(path)
        if node is None:
            raise NoNode(path)
        if watcher is not None:
            self.watches.add(WatchKind.CHILDREN, path, watcher)
        return self._store.child_names(path), node.stat()

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        self._check_connected()
        validate_count(operations)
        return await self._store.submit(self._session_id, operations)

    async def close(self) -> None:
        await self._end(SessionState.CLOSED)

    async def expire(self) -> None:
        """Ends the session as ZooKeeper would after its timeout."""
        await self._end(SessionState.EXPIRED)

    async def _end(self, state: SessionState) -> None:
        if self._state is not SessionState.CONNECTED:
            return
        self._state = state
        self.watches.clear()
        try:
            await self._store.end_session(self)
        finally:
            self.tell(state)

    def _find(self, path: str) -> Node | None:
        self._check_connected()
        validate_path(path)
        return self._store.find(path)

    def _check_connected(self) -> None:
        if self._state is not SessionState.CONNECTED:
            raise SessionExpired(f"session {self._session_id:#x} is {self._state.name.lower()}")
