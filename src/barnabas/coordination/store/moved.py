"""The mark on log directories whose metadata has moved from their embedded store to ZooKeeper.

The mark is there before the first node is copied, so that no broker changes the embedded store from then on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from barnabas.coordination.store.contract import StoreUnavailable
from barnabas.coordination.store.journal import COPY_FILE, LEGACY_FILE, STORE_FILE
from barnabas.log.file_system import FileSystem

MOVED_FILE: Final = "barnabas-store.moved"
_SETTING: Final = "zookeeper.connect="


def moved_to(fs: FileSystem, directories: Sequence[str]) -> str | None:
    """The `zookeeper.connect` of the ensemble that has the metadata of these log directories by now."""
    for directory in directories:
        path = os.path.join(directory, MOVED_FILE)
        if fs.exists(path):
            text = fs.read_file(path).decode(errors="replace")
            return text.strip().removeprefix(_SETTING)
    return None


def mark_moved(fs: FileSystem, directories: Sequence[str], connect: str) -> None:
    for directory in directories:
        fs.write_atomically(os.path.join(directory, MOVED_FILE), f"{_SETTING}{connect}\n".encode())


def holds_embedded_store(fs: FileSystem, directories: Sequence[str]) -> bool:
    return any(
        fs.exists(os.path.join(directory, name))
        for directory in directories
        for name in (STORE_FILE, COPY_FILE, LEGACY_FILE)
    )


def refuse_moved_store(fs: FileSystem, directories: Sequence[str]) -> None:
    """Raises StoreUnavailable if a broker must not open the embedded store of these directories."""
    connect = moved_to(fs, directories)
    if connect is not None:
        raise StoreUnavailable(
            f"the metadata of {', '.join(directories)} has moved to ZooKeeper: start the broker with"
            f" zookeeper.connect={connect}"
        )


def refuse_unmoved_store(fs: FileSystem, directories: Sequence[str], connect: str) -> None:
    """Raises StoreUnavailable if topics and settings would be left behind in an embedded store."""
    if moved_to(fs, directories) is None and holds_embedded_store(fs, directories):
        raise StoreUnavailable(
            f"{', '.join(directories)} has the topics and settings of a single node. Move them to ZooKeeper first:"
            f" barnabas cluster migrate --log-dirs {','.join(directories)} --zookeeper {connect}"
        )
