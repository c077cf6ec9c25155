"""The store contract: ZooKeeper's, as far as Kafka uses it.

A store is a tree of nodes with a few bytes each. Every change gets a number, the zxid, and all clients see changes in
that order. A client works in a session. An ephemeral node is removed when its session ends, and may not have children.
A sequential node gets the count of its parent's children so far at the end of its name, in ten digits.

A watch reports one change, and is used up by it:

    left by     fires on
    exists      NODE_CREATED if there was no node, else NODE_DELETED or NODE_DATA_CHANGED
    get         NODE_DELETED or NODE_DATA_CHANGED
    children    NODE_DELETED or NODE_CHILDREN_CHANGED

A watcher is called on the event loop, before its session can see the result of the change, and once per event however
often it was set. When a session ends, its watches are dropped without a call; its listeners are called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias

from barnabas.value import Value

ANY_VERSION: Final = -1
NO_OWNER: Final = 0
# ZooKeeper's own bound on a message (jute.maxbuffer), less what a message has around the data.
DATA_BYTES_MAX: Final = (1 << 20) - 1024
PATH_LENGTH_MAX: Final = 4096
OPERATIONS_MAX: Final = 10_000


class StoreError(Exception):
    """An operation that the store refused; the message names the path."""


class NoNode(StoreError):
    pass


class NodeExists(StoreError):
    pass


class BadVersion(StoreError):
    pass


class NotEmpty(StoreError):
    pass


class NoChildrenForEphemerals(StoreError):
    pass


class BadArguments(StoreError):
    """A path or a value that no node can have."""


class AccessDenied(StoreError):
    """The node's ACL does not let this client do it."""


class SessionExpired(StoreError):
    """The session is over, by its own end or the store's word; its ephemeral nodes are gone or will be."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or written. Whether the operation took effect is not known."""


class StoreInUse(StoreUnavailable):
    """Another process has the store."""


class MultiFailed(StoreError):
    """One of several operations was refused, so none took effect."""

    def __init__(self, index: int, error: StoreError) -> None:
        super().__init__(f"operation {index}: {type(error).__name__}: {error}")
        self.index = index
        self.error = error


class CreateMode(Enum):
    PERSISTENT = auto()
    EPHEMERAL = auto()
    PERSISTENT_SEQUENTIAL = auto()
    EPHEMERAL_SEQUENTIAL = auto()

    @property
    def is_ephemeral(self) -> bool:
        return self in (CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL)

    @property
    def is_sequential(self) -> bool:
        return self in (CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL)


class EventType(Enum):
    NODE_CREATED = auto()
    NODE_DELETED = auto()
    NODE_DATA_CHANGED = auto()
    NODE_CHILDREN_CHANGED = auto()


class SessionState(Enum):
    CONNECTED = auto()
    # Out of touch for now; ephemeral nodes may still be there.
    SUSPENDED = auto()
    EXPIRED = auto()
    CLOSED = auto()


class Stat(Value, kw_only=True):
    """The store's data about a node besides its content. `cversion` counts created and removed children."""

    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int


class WatchEvent(Value, kw_only=True):
    type: EventType
    path: str


class Create(Value):
    path: str
    data: bytes = b""
    mode: CreateMode = CreateMode.PERSISTENT


class SetData(Value):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(Value):
    path: str
    version: int = ANY_VERSION


class Check(Value):
    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check
# The path of a created node, the stat of a changed one, None for the others.
OperationResult: TypeAlias = str | Stat | None
Watcher: TypeAlias = Callable[[WatchEvent], None]
SessionListener: TypeAlias = Callable[[SessionState], None]


class Store(Protocol):
    """A session with the store. Any method may raise SessionExpired or StoreUnavailable."""

    @property
    def session_id(self) -> int: ...

    async def create(self, path: str, data: bytes = b"", *, mode: CreateMode = CreateMode.PERSISTENT) -> str:
        """Makes a node and returns its path. Raises NoNode, NodeExists, NoChildrenForEphemerals, BadArguments."""

    async def exists(self, path: str, watcher: Watcher | None = None) -> Stat | None:
        """The node's stat if there is one. The watch is left in either case."""

    async def get(self, path: str, watcher: Watcher | None = None) -> tuple[bytes, Stat]:
        """The node's data. Raises NoNode, and then leaves no watch."""

    async def get_all(
        self, paths: Sequence[str], watcher: Watcher | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """The data of many nodes, None for those that do not exist. The store reads them together.

        Nodes that do not exist have no watch.
        """

    async def children(self, path: str, watcher: Watcher | None = None) -> tuple[list[str], Stat]:
        """The names of the node's children, sorted. Raises NoNode, and then leaves no watch."""

    async def set(self, path: str, data: bytes, *, version: int = ANY_VERSION) -> Stat:
        """Replaces the data if the node has this version. Raises NoNode, BadVersion, BadArguments."""

    async def delete(self, path: str, *, version: int = ANY_VERSION) -> None:
        """Removes the node if it has this version. Raises NoNode, BadVersion, NotEmpty, BadArguments."""

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """All of the operations at one zxid, or none: then raises MultiFailed with the first that was refused."""

    def add_session_listener(self, listener: SessionListener) -> None: ...

    async def close(self) -> None:
        """Ends the session; its ephemeral nodes are gone when this returns."""


class StoreEngine(Protocol):
    """A store that sessions are opened with."""

    @property
    def may_have_lost(self) -> bool:
        """Whether changes that were reported as stored may be missing."""

    async def connect(self) -> Store:
        """A new session. Raises StoreUnavailable."""

    async def close(self) -> None: ...


def validate_path(path: str) -> None:
    """Raises BadArguments unless ZooKeeper would take the path."""
    problem = _path_problem(path)
    if problem:
        raise BadArguments(f"{path[:200]!r}: {problem}")


def validate_data(path: str, data: bytes) -> None:
    if len(data) > DATA_BYTES_MAX:
        raise BadArguments(
            f"{path}: {len(data)} bytes are more than the {DATA_BYTES_MAX} that a node can hold"
        )


def validate_count(operations: Sequence[Operation]) -> None:
    if len(operations) > OPERATIONS_MAX:
        raise BadArguments(f"{len(operations)} operations at once are more than {OPERATIONS_MAX}")


def parent_of(path: str) -> str:
    assert path != "/"
    return path[: path.rindex("/")] or "/"


def name_of(path: str) -> str:
    return path[path.rindex("/") + 1 :]


def child_path(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


async def ensure_path(store: Store, path: str) -> None:
    """Makes the node and those above it, as far as they are missing."""
    try:
        await store.create(path)
    except NodeExists:
        return
    except NoNode:
        await ensure_path(store, parent_of(path))
        await ensure_path(store, path)


async def children_of(store: Store, path: str) -> list[str]:
    """The names of a node's children. A node that does not exist has none."""
    try:
        names, _ = await store.children(path)
    except NoNode:
        return []
    return names


def _path_problem(path: str) -> str:
    if not path.startswith("/"):
        return "a path starts with /"
    if path == "/":
        return ""
    if len(path) > PATH_LENGTH_MAX:
        return f"a path has at most {PATH_LENGTH_MAX} characters"
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            return "a path has no empty name, no . and no .. in it"
    # Most paths are plain: one pass in C settles them.
    if path.isascii() and path.isprintable():
        return ""
    return "a path has no control or private character in it" if any(map(_is_refused, path)) else ""


def _is_refused(character: str) -> bool:
    code = ord(character)
    return code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF
