"""The store on a ZooKeeper ensemble, by kazoo.

kazoo runs its connection in a thread of its own. Everything that it receives, completions and watch events alike, is
handed to the event loop through one queue, so that a session sees a change no earlier than its watchers do.

When the connection is lost, the session may live on. kazoo forgets its watches then. On the new connection the
session reads every watched node again and compares it with the last zxid that it has seen, as ZooKeeper's own client
has the server do; what has changed meanwhile is reported to the watchers. Until that is done, operations wait.

A read that the connection was lost under is repeated. A write is not, since it may have taken effect: it raises
StoreUnavailable, and the caller finds out. When the session expires, it is over; the owner opens another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.coordination.store.contract import (
    BadArguments,
    EventType,
    MultiFailed,
    NodeExists,
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
    validate_count,
    validate_path,
)
from barnabas.coordination.store.session import EngineSession
from barnabas.coordination.store.watches import WatchKind, WatchTable
from barnabas.coordination.store.zookeeper_client import (
    LoopHandler,
    ZooKeeperSettings,
    add_operation,
    last_connection_problem,
    new_client,
    raise_refusal,
    refusal,
    result_of,
    stat_of,
    validate_operation,
)
from barnabas.coordination.store.zookeeper_multi_read import Found, MultiRead

log = logging.getLogger(__name__)

# Of one request that reads many: far below ZooKeeper's bound of 1 MiB with the longest names.
NODES_A_REQUEST: Final = 250

# What only the brokers may read when `zookeeper.set.acl` is on, as in Kafka: credentials, passwords and tokens.
SENSITIVE_PATHS: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
# As in Kafka: consumers of old versions write below it.
OPEN_PATH: Final = "/consumers"

_EVENTS: Final = {
    "CREATED": EventType.NODE_CREATED,
    "DELETED": EventType.NODE_DELETED,
    "CHANGED": EventType.NODE_DATA_CHANGED,
    "CHILD": EventType.NODE_CHILDREN_CHANGED,
}


class ZooKeeperStore:
    """An ensemble. Sessions come from `connect`."""

    # What ZooKeeper has confirmed, an ensemble keeps.
    may_have_lost: Final = False

    def __init__(self, settings: ZooKeeperSettings) -> None:
        self._settings = settings
        # Servers before 3.6 do not know the request. The first session finds out.
        self._has_multi_read = True

    async def connect(self) -> ZooKeeperSession:
        """Opens a session, and makes the chroot if it is missing. Raises StoreUnavailable."""
        settings = self._settings
        session = await self._open(settings.chroot)
        try:
            if settings.chroot and await session.exists("/") is None:
                await self._make_chroot()
        except BaseException:
            await session.close()
            raise
        return session

    async def close(self) -> None:
        """Sessions are closed by their owners; an ensemble has nothing else to close."""

    async def _open(self, chroot: str) -> ZooKeeperSession:
        session = ZooKeeperSession(self._settings, chroot, has_multi_read=self._has_multi_read)
        await session.open()
        if self._has_multi_read and not await session.answers_multi_read():
            # Such a server also closes the connection, at some later moment: no operation may be under way then.
            self._has_multi_read = False
            await session.close()
            session = ZooKeeperSession(self._settings, chroot, has_multi_read=False)
            await session.open()
        return session

    async def _make_chroot(self) -> None:
        above = await self._open("")
        try:
            path = ""
            for name in self._settings.chroot.split("/")[1:]:
                path = f"{path}/{name}"
                try:
                    await above.create(path)
                except NodeExists:
                    continue
        finally:
            await above.close()


class ZooKeeperSession(EngineSession):
    """A `Store` on an ensemble."""

    def __init__(self, settings: ZooKeeperSettings, chroot: str, *, has_multi_read: bool) -> None:
        super().__init__(asyncio.get_running_loop())
        self._settings = settings
        self._has_multi_read = has_multi_read
        self._handler = LoopHandler(self._loop, settings.tls)
        self._client = new_client(settings, chroot, self._handler)
        self._client.add_listener(self._on_client_state)
        self._state: SessionState | None = None
        # Set while operations may be sent, and once the session is over, so that those who wait find out.
        self._settled = asyncio.Event()
        # The zxid up to which watches have been reported, while the connection is down.
        self._seen_zxid: int | None = None
        self._rewatching: asyncio.Task[None] | None = None
        # What the new connection reports about watches before all of them are there.
        self._early_events: list[WatchEvent] = []
        self._identity: tuple[int, bytes] = (0, b"")
        self._closed: asyncio.Future[None] | None = None

    @property
    def session_id(self) -> int:
        return self._identity[0]

    @property
    def identity(self) -> tuple[int, bytes]:
        """The session's id and password: who has both can go on with the session."""
        return self._identity

    async def open(self) -> None:
        """Raises StoreUnavailable if no server answers within the connection time-out, or refuses the client."""
        settings = self._settings
        self._client.start_async()
        try:
            await asyncio.wait_for(self._settled.wait(), settings.connection_timeout_ms / 1_000)
        except TimeoutError:
            problem = last_connection_problem()
            await self._stop_client()
            raise StoreUnavailable(
                f"no ZooKeeper server of {settings.hosts} answered within {settings.connection_timeout_ms} ms"
                f" (zookeeper.connect, zookeeper.connection.timeout.ms){': ' if problem else ''}{problem}"
            ) from None
        except BaseException:
            await self._stop_client()
            raise
        if self._state is not SessionState.CONNECTED:
            await self._stop_client()
            raise StoreUnavailable(f"ZooKeeper at {settings.hosts} refused the client's credentials")

    async def answers_multi_read(self) -> bool:
        try:
            await self._get_many(["/"])
        except StoreError as error:
            # The next operation finds any other error too.
            return not isinstance(error.__cause__, UnimplementedError)
        return True

    async def exists(self, path: str, watcher: Watcher | None = None) -> Stat | None:
        validate_path(path)
        found = await self._read(self._client.exists_async, path, WatchKind.DATA, watcher)
        return None if found is None else stat_of(found)

    async def get(self, path: str, watcher: Watcher | None = None) -> tuple[bytes, Stat]:
        validate_path(path)
        data, stat = await self._read(self._client.get_async, path, WatchKind.DATA, watcher)
        return data or b"", stat_of(stat)

    async def get_all(
        self, paths: Sequence[str], watcher: Watcher | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        found: list[tuple[bytes, Stat] | None] = []
        at_once = self._settings.max_in_flight_requests
        if watcher is None and len(paths) > 1 and self._has_multi_read:
            for path in paths:
                validate_path(path)
            parts = [
                paths[start : start + NODES_A_REQUEST] for start in range(0, len(paths), NODES_A_REQUEST)
            ]
            for start in range(0, len(parts), at_once):
                for each in await asyncio.gather(*map(self._get_many, parts[start : start + at_once])):
                    found += each
            return found
        for start in range(0, len(paths), at_once):
            part = paths[start : start + at_once]
            found += await asyncio.gather(*(self._get_if_there(path, watcher) for path in part))
        return found

    async def _get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        def send(path: str, watch: None) -> Any:
            client = self._client
            answer = client.handler.async_result()
            client._call(MultiRead(client.chroot, paths), answer)
            return answer

        nodes: Found = await self._read(send, paths[0], WatchKind.DATA, None)
        found: list[tuple[bytes, Stat] | None] = []
        for path, node in zip(paths, nodes, strict=True):
            if isinstance(node, Exception):
                raise self._store_error(node, path) from node
            found.append(None if node is None else (node[0], stat_of(node[1])))
        return found

    async def _get_if_there(self, path: str, watcher: Watcher | None) -> tuple[bytes, Stat] | None:
        try:
            return await self.get(path, watcher)
        except NoNode:
            return None

    async def children(self, path: str, watcher: Watcher | None = None) -> tuple[list[str], Stat]:
        validate_path(path)
        names, stat = await self._read(self._children_async, path, WatchKind.CHILDREN, watcher)
        return sorted(names), stat_of(stat)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        validate_count(operations)
        for index, operation in enumerate(operations):
            try:
                validate_operation(operation)
            except BadArguments as error:
                raise MultiFailed(index, error) from None
        await self._wait_until_settled()
        if not operations:
            return []
        transaction = self._client.transaction()
        for operation in operations:
            add_operation(transaction, operation, self._acl)
        try:
            results = await self._completion(transaction.commit_async())
        except Exception as error:
            raise self._store_error(error, operations[0].path) from error
        raise_refusal(operations, results)
        return [result_of(each) for each in results]

    async def close(self) -> None:
        """Ends the session. Its ephemeral nodes are gone when the server has confirmed it, or expire with it."""
        if self._state in (SessionState.CONNECTED, SessionState.SUSPENDED):
            self._end(SessionState.CLOSED)
        await self._stop_client()

    async def _read(
        self, send: Callable[..., Any], path: str, kind: WatchKind, watcher: Watcher | None
    ) -> Any:
        while True:
            await self._wait_until_settled()
            on_done = None if watcher is None else _leaving(self.watches, kind, path, watcher)
            watch = None if watcher is None else self._on_watch
            try:
                return await self._completion(send(path, watch=watch), on_done)
            except ConnectionLoss:
                # The next connection answers, or the session turns out to be over.
                self._settled.clear()
            except Exception as error:
                raise self._store_error(error, path) from error

    def _children_async(self, path: str, watch: Callable[[Any], None] | None) -> Any:
        return self._client.get_children_async(path, watch=watch, include_data=True)

    def _completion(self, sent: Any, on_done: Callable[[Any], None] | None = None) -> asyncio.Future[Any]:
        """`on_done` gets the result before any event that the server has sent after it."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(completed: Any) -> None:
            error = completed.exception
            if error is None and on_done is not None:
                on_done(completed.value)
            if future.done():
                return
            if error is None:
                future.set_result(completed.value)
            else:
                future.set_exception(error)

        sent.rawlink(done)
        return future

    async def _wait_until_settled(self) -> None:
        while not self._settled.is_set():
            await self._settled.wait()
        if self._state is not SessionState.CONNECTED:
            raise SessionExpired(f"session {self.session_id:#x} is over")

    def _store_error(self, error: Exception, path: str) -> StoreError:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            return SessionExpired(f"session {self.session_id:#x} is over")
        if isinstance(error, ConnectionLoss):
            return StoreUnavailable(f"the connection to ZooKeeper was lost during an operation on {path}")
        return refusal(error, path)

    def _acl(self, path: str) -> list[Any]:
        if not self._settings.set_acl or path == OPEN_PATH:
            return list(OPEN_ACL_UNSAFE)
        if path.startswith(SENSITIVE_PATHS):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]

    def _on_client_state(self, state: str) -> None:
        """Called by kazoo's thread, in the order of what it receives."""
        client = self._client
        keeper, zxid, identity = client.client_state, client.last_zxid, client.client_id
        self._handler.callback_queue.put(lambda: self._on_state(state, keeper, zxid, identity))

    def _on_state(self, state: str, keeper: str, zxid: int, identity: tuple[int, bytes] | None) -> None:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            return
        if state == KazooState.CONNECTED:
            if self._state is None:
                assert identity is not None
                self._identity = identity
                self._state = SessionState.CONNECTED
                self._settled.set()
            else:
                self._rewatching = self._loop.create_task(self._rewatch())
        elif state == KazooState.SUSPENDED:
            self._on_suspended(zxid)
        elif self._state is None:
            # The client was refused before it had a session.
            self._state = SessionState.CLOSED
            self._settled.set()
        else:
            if keeper != KeeperState.EXPIRED_SESSION:
                log.error("The ZooKeeper session is over: %s", keeper)
            self._end(SessionState.EXPIRED)
            self._closed = asyncio.ensure_future(self._loop.run_in_executor(None, self._stop_blocking))

    def _on_suspended(self, zxid: int) -> None:
        self._settled.clear()
        # The next connection finds out about these again.
        self._early_events.clear()
        if self._rewatching is not None:
            self._rewatching.cancel()
            self._rewatching = None
        if self._seen_zxid is None:
            self._seen_zxid = zxid
        if self._state is SessionState.CONNECTED:
            self._state = SessionState.SUSPENDED
            log.warning("The connection to ZooKeeper is lost; the session may still be alive")
            self.tell(SessionState.SUSPENDED)

    async def _rewatch(self) -> None:
        """Leaves the watches on the new connection, and reports what has changed since the last one."""
        seen_zxid = self._seen_zxid
        assert seen_zxid is not None
        try:
            events = await asyncio.gather(
                *(self._rewatch_one(kind, path, seen_zxid) for kind, path in self.watches)
            )
        except (ConnectionLoss, ConnectionClosedError, SessionExpiredError):
            # The state that follows begins this again, or ends the session.
            return
        self._rewatching = None
        early, self._early_events = self._early_events, []
        for event in (*events, *early):
            if event is not None:
                self.fire(event)
        self._seen_zxid = None
        self._state = SessionState.CONNECTED
        self._settled.set()
        log.info("The connection to ZooKeeper is back, with the same session")
        self.tell(SessionState.CONNECTED)

    async def _rewatch_one(self, kind: WatchKind, path: str, seen_zxid: int) -> WatchEvent | None:
        is_children = kind is WatchKind.CHILDREN
        send = self._children_async if is_children else self._client.exists_async
        try:
            found = await self._completion(send(path, watch=self._on_watch))
        except NoNodeError:
            found = None
        except NoAuthError:
            # Only children need a permission. The watcher lists them again, and learns that it may not.
            return WatchEvent(type=EventType.NODE_CHILDREN_CHANGED, path=path)
        if found is None:
            # A watch for a node to appear is kept; any other was on a node that is gone.
            return None if kind is WatchKind.ABSENT else WatchEvent(type=EventType.NODE_DELETED, path=path)
        stat = found[1] if is_children else found
        if kind is WatchKind.ABSENT:
            return WatchEvent(type=EventType.NODE_CREATED, path=path)
        if is_children:
            changed = stat.pzxid > seen_zxid
            return WatchEvent(type=EventType.NODE_CHILDREN_CHANGED, path=path) if changed else None
        return WatchEvent(type=EventType.NODE_DATA_CHANGED, path=path) if stat.mzxid > seen_zxid else None

    def _on_watch(self, event: Any) -> None:
        kind = _EVENTS.get(event.type)
        if kind is None:
            return
        if self._state is SessionState.CONNECTED:
            self.fire(WatchEvent(type=kind, path=event.path))
        elif self._rewatching is not None:
            # The server reports it once, and watchers may not see the change before the others do.
            self._early_events.append(WatchEvent(type=kind, path=event.path))

    def _end(self, state: SessionState) -> None:
        self._state = state
        self.watches.clear()
        if self._rewatching is not None:
            self._rewatching.cancel()
        self._settled.set()
        self.tell(state)

    async def _stop_client(self) -> None:
        if self._closed is None:
            self._closed = asyncio.ensure_future(self._loop.run_in_executor(None, self._stop_blocking))
        await asyncio.shield(self._closed)

    def _stop_blocking(self) -> None:
        self._client.stop()
        self._client.close()


def _leaving(table: WatchTable, kind: WatchKind, path: str, watcher: Watcher) -> Callable[[Any], None]:
    def leave(found: Any) -> None:
        table.add(WatchKind.ABSENT if found is None else kind, path, watcher)

    return leave
