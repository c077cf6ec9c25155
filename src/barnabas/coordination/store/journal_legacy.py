"""The store of version 0.1, an SQLite file. It is read once: then its content is in a journal."""

from __future__ import annotations

import os
from typing import Final

from barnabas.coordination.store.contract import StoreUnavailable
from barnabas.coordination.store.journal_format import StoreDamaged, with_children_counted
from barnabas.coordination.store.transaction import Node

LEGACY_FORMAT_VERSION: Final = 1
MOVED_SUFFIX: Final = ".moved"

_COLUMNS: Final = (
    "path, data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, children_created, ephemeral_owner"
)


def read_legacy(path: str) -> tuple[dict[str, Node], int]:
    """The tree and the last zxid. Raises StoreUnavailable."""
    # It takes 10 ms to load, and is needed once in the life of a store.
    import sqlite3

    try:
        database = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            # When the last connection is closed, the content of the write-ahead file moves to the database.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("BEGIN IMMEDIATE")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version != LEGACY_FORMAT_VERSION:
                raise StoreDamaged(
                    f"{path} has format {version}, and this release knows {LEGACY_FORMAT_VERSION}"
                )
            (verdict,) = database.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise StoreDamaged(f"{path} is damaged: {verdict}")
            rows = database.execute(f"SELECT {_COLUMNS} FROM node")
            nodes = {name: Node._make((*columns, 0)) for name, *columns in rows}
            (zxid,) = database.execute("SELECT zxid FROM last").fetchone()
            database.execute("COMMIT")
        finally:
            database.close()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY":
            raise StoreUnavailable(f"{path} is in use by another process") from error
        raise StoreDamaged(f"{path} cannot be read: {error}") from error
    return with_children_counted(nodes, path), zxid


def moved_name(path: str) -> str:
    """The new name of the file: an older release must not continue from it."""
    return os.path.join(os.path.dirname(path), os.path.basename(path) + MOVED_SUFFIX)
