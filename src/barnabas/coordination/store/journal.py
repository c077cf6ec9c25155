"""The embedded store's disk: two copies of a journal, written by one thread.

A commit is appended to both copies and is done when both are synced, so it is complete or absent after a crash, and
present once it was reported. A copy whose disk fails is dropped, and written again at the next start.

When the store is opened, every byte of both copies is checked, and the longer copy is used. As long as one copy is
intact, no reported change is missing; the other is written again from it. If neither is intact, the store stays closed
until the user decides: see `_best`.

With several log directories the copies are in the first two, else both are in the same one. A journal that has grown is
replaced by a snapshot. Transactions that wait while one commits share the next commit. The first directory is locked as
long as the store is open.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from barnabas.coordination.store.contract import NO_OWNER, Delete, StoreInUse, StoreUnavailable
from barnabas.coordination.store.journal_format import (
    Copy,
    StoreDamaged,
    changes_frame,
    is_damaged_inside,
    read_copy,
    snapshot,
)
from barnabas.coordination.store.transaction import Node, Transaction
from barnabas.log.file_system import READ, WRITE, File, FileSystem, NoSuchFile, StorageFailure
from barnabas.primitives.executors import NewExecutor, new_threads

log = logging.getLogger(__name__)

STORE_FILE: Final = "barnabas-store.journal"
# The second copy, where there is one directory for both.
COPY_FILE: Final = "barnabas-store.copy"
LEGACY_FILE: Final = "barnabas-store.sqlite"
DAMAGED_SUFFIX: Final = ".damaged"
# A zxid's upper half counts openings of the store, as ZooKeeper's counts leaders.
EPOCH_SHIFT: Final = 32
# A journal is replaced by a snapshot when its commits take more than this, and more than the tree itself.
COMMITS_BYTES_MAX: Final = 4 << 20


class Journal:
    """All methods belong to one thread, the one that opened it."""

    def __init__(
        self,
        directories: Sequence[str],
        fs: FileSystem,
        *,
        accepted_losses: Collection[str] = (),
        locks: bool = True,
        new_executor: NewExecutor = new_threads,
    ) -> None:
        """`accepted_losses` has the paths of damaged copies that the user gives up."""
        assert directories
        self._directories = list(directories)
        self._fs = fs
        self._accepted_losses = accepted_losses
        self._locks = locks
        self._lock: File | None = None
        names = (STORE_FILE,) * 2 if len(directories) > 1 else (STORE_FILE, COPY_FILE)
        self._paths = [
            os.path.join(directory, name)
            for directory, name in zip([*directories, directories[0]], names, strict=False)
        ]
        self._copies: list[_OpenCopy] = []
        self._executor = new_executor(len(self._paths) - 1, "store-sync")
        # Whether changes that were reported as stored may be missing, with a person's consent.
        self.may_have_lost = False

    def open(self, *, now_ms: int) -> tuple[dict[str, Node], int]:
        """The tree and the zxid to continue from, without the ephemeral nodes of old sessions.

        Raises StoreUnavailable.
        """
        try:
            self._lock_directory()
            nodes, last_zxid = self._load()
            zxid = ((last_zxid >> EPOCH_SHIFT) + 1) << EPOCH_SHIFT
            cleanup = Transaction(nodes, zxid=zxid, now_ms=now_ms, owner=NO_OWNER)
            for path in [path for path, node in nodes.items() if node.ephemeral_owner != NO_OWNER]:
                cleanup.run(Delete(path))
            self.commit([cleanup])
        except StorageFailure as failure:
            self.close()
            raise self.unavailable(failure) from failure
        except BaseException:
            self.close()
            raise
        for path, node in cleanup.changes.items():
            if node is None:
                del nodes[path]
            else:
                nodes[path] = node
        return nodes, zxid

    def commit(self, transactions: Iterable[Transaction]) -> None:
        """Makes the transactions durable, together. Raises StorageFailure."""
        changes: dict[str, Node | None] = {}
        zxid = 0
        for transaction in transactions:
            changes.update(transaction.changes)
            zxid = transaction.zxid
        data = changes_frame(zxid, changes.items())
        self._in_all(lambda copy: copy.append(data))
        overgrown = [copy for copy in self._copies if copy.is_overgrown]
        if overgrown:
            # The tree is read from the file: to keep it here as well would take memory for nothing.
            written = self._read(overgrown[0].path)
            if written is None or not written.is_whole:
                raise StoreDamaged(f"{overgrown[0].path} was damaged while the broker was running")
            self._replace(overgrown, snapshot(written.nodes(), zxid))

    def _in_all(self, action: Callable[[_OpenCopy], None]) -> None:
        """Syncs both at once: a disk takes hardly longer to sync two files than one. Drops a copy whose disk fails.

        Raises StorageFailure when no copy is left.
        """
        others = [(copy, self._executor.submit(action, copy)) for copy in self._copies[1:]]
        failures: list[StorageFailure] = []
        outcomes: list[tuple[_OpenCopy, Callable[[], None]]] = [
            (self._copies[0], partial(action, self._copies[0])),
            *((copy, future.result) for copy, future in others),
        ]
        for copy, outcome in outcomes:
            try:
                outcome()
            except StorageFailure as failure:
                failures.append(failure)
                self._copies = [each for each in self._copies if each is not copy]
        if not self._copies:
            raise failures[0]
        for each in failures:
            log.error("The store continues with one copy, %s: %s", self._copies[0].path, each)
        left_behind = set(self._paths).difference(copy.path for copy in self._copies)
        for path in left_behind if failures else ():
            # It is out of date from now on: better none than that one, should the other be lost.
            with contextlib.suppress(StorageFailure):
                self._fs.remove(path, missing_ok=True)

    def _replace(self, copies: Iterable[_OpenCopy], data: bytes) -> None:
        for copy in copies:
            try:
                copy.replace(data)
            except StorageFailure as failure:
                # A full disk, most likely. The existing journal is as good, and longer.
                log.warning("The journal of the store keeps growing: %s", failure)

    def close(self) -> None:
        self._copies = []
        self._lock = None
        self._executor.shutdown()

    def unavailable(self, error: BaseException) -> StoreUnavailable:
        if isinstance(error, StoreUnavailable):
            return error
        unavailable = StoreUnavailable(str(error))
        unavailable.__cause__ = error
        return unavailable

    def _lock_directory(self) -> None:
        if not self._locks:
            return
        directory = self._directories[0]
        file = self._fs.open(directory, READ)
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreInUse(f"{directory} is in use by another broker") from None
        self._lock = file

    def _load(self) -> tuple[dict[str, Node], int]:
        candidates = dict.fromkeys(
            os.path.join(directory, name)
            for directory in self._directories
            for name in (STORE_FILE, COPY_FILE)
        )
        copies = {path: copy for path in candidates if (copy := self._read(path)) is not None}
        best = self._best(list(copies.values()))
        if best is None:
            nodes, zxid = self._load_legacy()
        else:
            nodes, zxid = best.nodes(), best.zxid
            if not self.may_have_lost:
                self._report_repairs(best, copies)
        if best is not None and all(_is_like(copies.get(path), best) for path in self._paths):
            self._copies = [_OpenCopy(self._fs, path, best.end, best.snapshot_end) for path in self._paths]
            for path in self._paths:
                self._make_private(path)
        else:
            data = snapshot(nodes, zxid)
            self._copies = [_OpenCopy(self._fs, path) for path in self._paths]
            self._in_all(lambda copy: copy.replace(data))
        self._clear_away([path for path in copies if path not in self._paths])
        return nodes, zxid

    def _make_private(self, path: str) -> None:
        """For files that an older version has written."""
        try:
            self._fs.make_private(path)
        except StorageFailure as error:
            log.warning("Other users of this machine may read keys and passwords: %s", error)

    def _read(self, path: str) -> Copy | None:
        try:
            return read_copy(path, self._fs.read_file(path))
        except NoSuchFile:
            return None

    def _best(self, copies: list[Copy]) -> Copy | None:
        """The copy to continue from; None if there is no store.

        A crash leaves at most a part of the last commit, after the same commit in both copies. Any other damage to all
        copies may have lost reported changes: the user has to accept that.
        """
        if not copies:
            return None
        usable = [copy for copy in copies if copy.has_snapshot]
        best = max(usable, key=lambda copy: (copy.zxid, copy.is_whole), default=None)
        if best is not None:
            if best.is_whole:
                return best
            is_torn_alike = len(usable) > 1 and all(copy.zxid == best.zxid for copy in usable)
            if is_torn_alike and not any(map(is_damaged_inside, usable)):
                return best
        damaged = [copy for copy in copies if not copy.is_whole]
        if not any(copy.path in self._accepted_losses for copy in damaged):
            raise _damaged(damaged, best)
        self.may_have_lost = True
        for copy in damaged:
            log.error(
                "%s is damaged (%s) and kept as %s%s", copy.path, copy.problem, copy.path, DAMAGED_SUFFIX
            )
            self._fs.write_atomically(copy.path + DAMAGED_SUFFIX, copy.data, is_private=True)
        log.error(
            "Settings, quotas and topics that were changed last may be missing. No topic loses records by retention or"
            " compaction until its settings are confirmed"
        )
        return best

    def _report_repairs(self, best: Copy, copies: dict[str, Copy]) -> None:
        for path in self._paths:
            copy = copies.get(path)
            if copy is None:
                log.warning(
                    "%s is missing: it is written again from %s, and nothing is lost", path, best.path
                )
            elif copy.is_whole:
                continue
            elif copy.end == best.end:
                # As a crash leaves it.
                log.warning("%s ends with a change that was not complete, and is cut off there", path)
            else:
                log.error(
                    "%s is damaged: %s. It is written again from %s, and nothing is lost",
                    *(path, copy.problem, best.path),
                )

    def _load_legacy(self) -> tuple[dict[str, Node], int]:
        for directory in self._directories:
            path = os.path.join(directory, LEGACY_FILE)
            if self._fs.exists(path):
                from barnabas.coordination.store.journal_legacy import read_legacy

                return read_legacy(path)
        return read_copy("", snapshot({}, 0)).nodes(), 0

    def _clear_away(self, stale: Iterable[str]) -> None:
        """Copies in other places after directories were added or removed, and the store of version 0.1."""
        for path in stale:
            self._fs.remove(path)
        for directory in self._directories:
            path = os.path.join(directory, LEGACY_FILE)
            if self._fs.exists(path):
                from barnabas.coordination.store.journal_legacy import moved_name

                self._fs.rename(path, moved_name(path))
                self._make_private(moved_name(path))
                for suffix in ("-wal", "-shm"):
                    self._fs.remove(path + suffix, missing_ok=True)
                log.info("The store of version 0.1 is taken over, and kept as %s", moved_name(path))


class _OpenCopy:
    """A file that commits are appended to."""

    def __init__(self, fs: FileSystem, path: str, position: int = 0, snapshot_end: int = 0) -> None:
        self.path = path
        self._fs = fs
        self._file: File | None = fs.open(path, WRITE) if position else None
        self._position = position
        self._snapshot_end = snapshot_end

    @property
    def is_overgrown(self) -> bool:
        return self._position - self._snapshot_end > max(COMMITS_BYTES_MAX, self._snapshot_end)

    def append(self, data: bytes) -> None:
        assert self._file is not None
        self._file.pwrite(data, self._position)
        self._file.sync()
        self._position += len(data)

    def replace(self, data: bytes) -> None:
        # If that fails it is not tried again before as much has been appended.
        self._snapshot_end = self._position
        # It holds keys of users and passwords.
        self._fs.write_atomically(self.path, data, is_private=True)
        self._file = self._fs.open(self.path, WRITE)
        self._position = self._snapshot_end = len(data)


def _is_like(copy: Copy | None, best: Copy) -> bool:
    """Whether a copy needs not be written again."""
    return copy is not None and copy.is_whole and copy.data == best.data


def _damaged(damaged: list[Copy], best: Copy | None) -> StoreDamaged:
    what = "; ".join(f"{copy.path}: {copy.problem}" for copy in damaged)
    left = (
        "only the data in the directories of the partitions (no settings, no quotas)"
        if best is None
        else f"the part of {best.path} before the damage"
    )
    return StoreDamaged(
        f"the store of topics, settings and quotas is damaged in every copy. {what}. Put one of these files back from a"
        f" backup. To continue with {left}, start once with --override barnabas.accept.loss={damaged[0].path}"
    )
