"""Operations on a tree of immutable nodes: their conditions, their changes, and the affected sessions.

A transaction reads the tree below it and keeps its own changes apart, so that several operations succeed together or
leave no trace. It follows ZooKeeper's rules and their order exactly, because clients distinguish them by error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.coordination.store.contract import (
    ANY_VERSION,
    NO_OWNER,
    BadArguments,
    BadVersion,
    Check,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    OperationResult,
    SetData,
    Stat,
    parent_of,
    validate_data,
    validate_path,
)


class Node(NamedTuple):
    """`children_created` counts every child there ever was: it numbers sequential children, and never goes back."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    children_created: int
    ephemeral_owner: int
    num_children: int

    def stat(self) -> Stat:
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            pzxid=self.pzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            # Created children that no longer exist were also removed.
            cversion=2 * self.children_created - self.num_children,
            aversion=0,
            ephemeral_owner=self.ephemeral_owner,
            data_length=len(self.data),
            num_children=self.num_children,
        )


ROOT: Final = Node(
    data=b"",
    czxid=0,
    mzxid=0,
    pzxid=0,
    ctime_ms=0,
    mtime_ms=0,
    version=0,
    children_created=0,
    ephemeral_owner=NO_OWNER,
    num_children=0,
)


class Transaction:
    """Changes at one zxid, by one session."""

    __slots__ = ("_now_ms", "_owner", "_tree", "changes", "events", "zxid")

    def __init__(self, tree: Mapping[str, Node], *, zxid: int, now_ms: int, owner: int) -> None:
        self._tree = tree
        self._now_ms = now_ms
        self._owner = owner
        self.zxid = zxid
        # The new node of each path, None if it is removed; and the events, in order.
        self.changes: dict[str, Node | None] = {}
        self.events: list[tuple[EventType, str]] = []

    def run(self, operation: Operation) -> OperationResult:
        match operation:
            case Create():
                return self._create(operation)
            case SetData():
                return self._set(operation)
            case Delete():
                self._delete(operation)
            case Check():
                self._versioned(operation.path, operation.version)
        return None

    def _create(self, operation: Create) -> str:
        path, mode = operation.path, operation.mode
        validate_path(path)
        validate_data(path, operation.data)
        if path == "/":
            raise NodeExists(path)
        parent_path = parent_of(path)
        parent = self._node(parent_path)
        if mode.is_sequential:
            path = f"{path}{parent.children_created:010d}"
        if self._find(path) is not None:
            raise NodeExists(path)
        if parent.ephemeral_owner != NO_OWNER:
            raise NoChildrenForEphemerals(path)
        self.changes[path] = Node(
            data=operation.data,
            czxid=self.zxid,
            mzxid=self.zxid,
            pzxid=self.zxid,
            ctime_ms=self._now_ms,
            mtime_ms=self._now_ms,
            version=0,
            children_created=0,
            ephemeral_owner=self._owner if mode.is_ephemeral else NO_OWNER,
            num_children=0,
        )
        self.changes[parent_path] = parent._replace(
            pzxid=self.zxid,
            children_created=parent.children_created + 1,
            num_children=parent.num_children + 1,
        )
        self.events.append((EventType.NODE_CREATED, path))
        self.events.append((EventType.NODE_CHILDREN_CHANGED, parent_path))
        return path

    def _set(self, operation: SetData) -> Stat:
        validate_data(operation.path, operation.data)
        node = self._versioned(operation.path, operation.version)
        node = node._replace(
            data=operation.data, mzxid=self.zxid, mtime_ms=self._now_ms, version=node.version + 1
        )
        self.changes[operation.path] = node
        self.events.append((EventType.NODE_DATA_CHANGED, operation.path))
        return node.stat()

    def _delete(self, operation: Delete) -> None:
        path = operation.path
        if path == "/":
            raise BadArguments("/: the root stays")
        node = self._versioned(path, operation.version)
        if node.num_children > 0:
            raise NotEmpty(path)
        parent_path = parent_of(path)
        parent = self._node(parent_path)
        self.changes[path] = None
        self.changes[parent_path] = parent._replace(pzxid=self.zxid, num_children=parent.num_children - 1)
        self.events.append((EventType.NODE_DELETED, path))
        self.events.append((EventType.NODE_CHILDREN_CHANGED, parent_path))

    def _versioned(self, path: str, version: int) -> Node:
        validate_path(path)
        node = self._node(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(f"{path}: has version {node.version}, not {version}")
        return node

    def _node(self, path: str) -> Node:
        node = self._find(path)
        if node is None:
            raise NoNode(path)
        return node

    def _find(self, path: str) -> Node | None:
        return self.changes[path] if path in self.changes else self._tree.get(path)
