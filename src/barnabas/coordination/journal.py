"""The embedded store's disk: one SQLite file, written by one thread.

Each commit is one SQLite transaction in write-ahead mode with a full sync, so it is whole or absent after a crash, and
there once it was reported. Transactions that wait while one commits share the next commit. The file is locked for as
long as it is open. Nothing outside this module knows SQLite.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.coordination.store import NO_OWNER, Delete, StoreUnavailable, parent_of
from barnabas.coordination.transaction import ROOT, Node, Transaction

FORMAT_VERSION: Final = 1
# A zxid's upper half counts openings of the store, as ZooKeeper's counts leaders.
EPOCH_SHIFT: Final = 32

_SCHEMA: Final = """
CREATE TABLE node (
    path TEXT PRIMARY KEY,
    data BLOB NOT NULL,
    czxid INTEGER NOT NULL,
    mzxid INTEGER NOT NULL,
    pzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL,
    mtime_ms INTEGER NOT NULL,
    version INTEGER NOT NULL,
    children_created INTEGER NOT NULL,
    ephemeral_owner INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE last (zxid INTEGER NOT NULL);
INSERT INTO last VALUES (0);
"""
# In the order of a Node's fields, the last of which is counted.
_COLUMNS: Final = (
    "path, data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, children_created, ephemeral_owner"
)


class Journal:
    """All methods belong to one thread, the one that opened it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None

    def open(self, *, now_ms: int) -> tuple[dict[str, Node], int]:
        """The tree and the zxid to go on from. Ephemeral nodes of sessions past are gone. Raises StoreUnavailable."""
        try:
            self._database = self._connect()
            nodes, last_zxid = self._load()
            zxid = ((last_zxid >> EPOCH_SHIFT) + 1) << EPOCH_SHIFT
            cleanup = Transaction(nodes, zxid=zxid, now_ms=now_ms, owner=NO_OWNER)
            for path in [path for path, node in nodes.items() if node.ephemeral_owner != NO_OWNER]:
                cleanup.run(Delete(path))
            self.commit([cleanup])
        except sqlite3.Error as error:
            self.close()
            raise self.unavailable(error) from error
        except StoreUnavailable:
            self.close()
            raise
        for path, node in cleanup.changes.items():
            if node is None:
                del nodes[path]
            else:
                nodes[path] = node
        return nodes, zxid

    def commit(self, transactions: Iterable[Transaction]) -> None:
        """Makes the transactions durable, together. Raises sqlite3.Error."""
        database = self._database
        assert database is not None
        changes: dict[str, Node | None] = {}
        zxid = 0
        for transaction in transactions:
            changes.update(transaction.changes)
            zxid = transaction.zxid
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(
                "DELETE FROM node WHERE path = ?", [(path,) for path, node in changes.items() if node is None]
            )
            database.executemany(
                f"INSERT OR REPLACE INTO node ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(path, *node[:-1]) for path, node in changes.items() if node is not None],
            )
            database.execute("UPDATE last SET zxid = ?", (zxid,))
            database.execute("COMMIT")
        except sqlite3.Error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def unavailable(self, error: Exception) -> StoreUnavailable:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
            return StoreUnavailable(f"{self._path}: in use by another process")
        return StoreUnavailable(f"{self._path}: {error}")

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        try:
            # Exclusive first: then the write-ahead log needs no shared memory, and a second process is refused.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute("PRAGMA fullfsync = ON")
            database.execute("BEGIN IMMEDIATE")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                # `executescript` would end the transaction that makes this whole or absent.
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            elif version != FORMAT_VERSION:
                raise StoreUnavailable(
                    f"{self._path}: has format {version}, and this release knows {FORMAT_VERSION}"
                )
            database.execute("COMMIT")
        except BaseException:
            database.close()
            raise
        return database

    def _load(self) -> tuple[dict[str, Node], int]:
        assert self._database is not None
        # All of the file is about to be read anyway.
        (verdict,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreUnavailable(f"{self._path}: damaged: {verdict}")
        rows = self._database.execute(f"SELECT {_COLUMNS} FROM node")
        nodes = {path: Node._make((*columns, 0)) for path, *columns in rows}
        nodes.setdefault("/", ROOT)
        for path, count in _children_counts(nodes, self._path).items():
            nodes[path] = nodes[path]._replace(num_children=count)
        (zxid,) = self._database.execute("SELECT zxid FROM last").fetchone()
        return nodes, zxid


def _children_counts(nodes: Mapping[str, Node], source: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for path in nodes:
        if path == "/":
            continue
        parent = parent_of(path) if path.startswith("/") else ""
        if parent not in nodes:
            raise StoreUnavailable(f"{source}: damaged: {path!r} has no parent")
        counts[parent] = counts.get(parent, 0) + 1
    return counts
