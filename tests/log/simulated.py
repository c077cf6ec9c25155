"""A file system in memory that can crash and fail, replayable from a seed.

It keeps what a real disk would surely have apart from what is only in a cache:

- A file's content is durable once the file was synced. Of what was written since, a crash keeps, loses, zeroes or
  garbles each 4 KiB block by itself, but never touches bytes that were not written since. The file's size may fall
  back anywhere between the durable one and the last one. A file that was cut is either still uncut, or has lost what
  was cut off, with any part of what was written afterwards.
- A directory's entries are durable once the directory was synced. What was made, renamed or removed in it since may
  each have happened or not; a rename happens as a whole or not at all.

`crash` makes the file system that a machine finds after a power cut, `kill` what a process finds after the one before
it was killed: everything that was written. `crash_after` stops the world at a chosen step. `inject` makes chosen
operations on chosen paths fail, for good or a number of times; a write that fails with ENOSPC writes a part first.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from barnabas.clock import Clock, ManualClock
from barnabas.log.file_system import (
    CREATE,
    READ,
    TEMPORARY_SUFFIX,
    Data,
    StorageFailure,
    storage_failure,
)
from barnabas.primitives.second_chance import SecondChance

BLOCK_BYTES: Final = 4096
DISK_BYTES: Final = 1 << 40

_ZEROS: Final = bytes(BLOCK_BYTES)
_OUTCOMES: Final = ("keep", "keep", "keep", "lose", "zero", "garble")


class SimulatedCrash(BaseException):
    """The machine stops here. It is no Exception, so that nothing under test handles it."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """Operations under a path fail; `remaining` of them, or all. The first `skip` pass."""

    prefix: str
    error_number: int
    operations: Collection[str] | None = None
    remaining: int | None = None
    skip: int = 0

    def strikes(self, operation: str, path: str) -> bool:
        if not (path == self.prefix or path.startswith(self.prefix.rstrip("/") + "/")):
            return False
        if self.operations is not None and operation not in self.operations:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.remaining is not None:
            if self.remaining == 0:
                return False
            self.remaining -= 1
        return True


@dataclass(slots=True)
class _Content:
    """Blocks that are not there are zeros; `written` tells which bytes of a block were written since the last sync."""

    blocks: dict[int, bytes] = field(default_factory=dict)
    size_bytes: int = 0
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    # The smallest size since the last sync: what was durable beyond it is gone.
    floor_bytes: int = 0

    def copy(self) -> _Content:
        return _Content(dict(self.blocks), self.size_bytes, dict(self.written), self.floor_bytes)

    def read(self, size_bytes: int, position: int) -> bytes:
        end = min(position + size_bytes, self.size_bytes)
        if position >= end:
            return b""
        first = position // BLOCK_BYTES
        data = b"".join(self.blocks.get(block, _ZEROS) for block in range(first, -(-end // BLOCK_BYTES)))
        return data[position - first * BLOCK_BYTES : end - first * BLOCK_BYTES]

    def write(self, data: bytes, position: int) -> None:
        end = position + len(data)
        taken = 0
        while position < end:
            block, start = divmod(position, BLOCK_BYTES)
            stop = min(BLOCK_BYTES, start + end - position)
            old = self.blocks.get(block, _ZEROS)
            self.blocks[block] = old[:start] + data[taken : taken + stop - start] + old[stop:]
            written = self.written.get(block, (start, stop))
            self.written[block] = (min(start, written[0]), max(stop, written[1]))
            taken += stop - start
            position += stop - start
        self.size_bytes = max(self.size_bytes, end)

    def cut(self, size_bytes: int) -> None:
        kept, rest = divmod(size_bytes, BLOCK_BYTES)
        self.blocks = {block: data for block, data in self.blocks.items() if block * BLOCK_BYTES < size_bytes}
        if rest and kept in self.blocks:
            self.blocks[kept] = self.blocks[kept][:rest].ljust(BLOCK_BYTES, b"\0")
        self.written = {
            block: (start, min(stop, size_bytes - block * BLOCK_BYTES))
            for block, (start, stop) in self.written.items()
            if block * BLOCK_BYTES + start < size_bytes
        }
        self.size_bytes = size_bytes
        self.floor_bytes = min(self.floor_bytes, size_bytes)


@dataclass(slots=True, eq=False)
class _FileNode:
    durable: _Content
    current: _Content
    # What there was before each cut since the last sync.
    before_cuts: list[_Content] = field(default_factory=list)
    modified_ms: int = 0

    def sync(self) -> None:
        self.durable = _Content(dict(self.current.blocks), self.current.size_bytes)
        self.current.written = {}
        self.current.floor_bytes = self.current.size_bytes
        self.before_cuts = []

    def after_crash(self, rng: Random) -> _FileNode:
        """A file that a machine might find after a power cut."""
        eras = [*self.before_cuts, self.current]
        era = eras[rng.randrange(len(eras))] if len(eras) > 1 else self.current
        result = self.durable.copy()
        if result.size_bytes > era.floor_bytes:
            result.cut(era.floor_bytes)
        smallest_bytes = result.size_bytes
        for block, (start, stop) in sorted(era.written.items()):
            old = result.blocks.get(block, _ZEROS)
            outcome = rng.choice(_OUTCOMES)
            if outcome == "keep":
                middle = era.blocks[block][start:stop]
            elif outcome == "lose":
                middle = old[start:stop]
            elif outcome == "zero":
                middle = bytes(stop - start)
            else:
                middle = rng.randbytes(stop - start)
            result.blocks[block] = old[:start] + middle + old[stop:]
        size_bytes = era.size_bytes
        if size_bytes != smallest_bytes:
            size_bytes = rng.choice((size_bytes, smallest_bytes, rng.randint(smallest_bytes, size_bytes)))
        result.size_bytes = max(size_bytes, result.size_bytes)
        result.cut(size_bytes)
        return _new_file(result, self.modified_ms)

    def after_kill(self) -> _FileNode:
        node = _new_file(self.durable, self.modified_ms)
        node.current = self.current.copy()
        node.before_cuts = [content.copy() for content in self.before_cuts]
        return node


def _new_file(durable: _Content, modified_ms: int) -> _FileNode:
    durable = _Content(durable.blocks, durable.size_bytes)
    current = _Content(dict(durable.blocks), durable.size_bytes, {}, durable.size_bytes)
    return _FileNode(durable, current, [], modified_ms)


@dataclass(slots=True, eq=False)
class _DirectoryNode:
    entries: dict[str, _Node] = field(default_factory=dict)
    modified_ms: int = 0


_Node = _FileNode | _DirectoryNode


@dataclass(slots=True)
class _Change:
    """A change of directory entries: names that go, and names that come, in the directories that they belong to."""

    removed: tuple[_DirectoryNode, str] | None
    added: tuple[_DirectoryNode, str, _Node] | None
    is_durable: bool = False

    def touches(self, directory: _DirectoryNode) -> bool:
        return (self.removed is not None and self.removed[0] is directory) or (
            self.added is not None and self.added[0] is directory
        )

    def apply(self, entries_of: Callable[[_DirectoryNode], dict[str, _Node]]) -> None:
        if self.removed is not None:
            entries_of(self.removed[0]).pop(self.removed[1], None)
        if self.added is not None:
            entries_of(self.added[0])[self.added[1]] = self.added[2]


class SimulatedFile:
    __slots__ = ("_fs", "_mode", "_node", "_path")

    def __init__(self, fs: SimulatedFileSystem, node: _FileNode, path: str, mode: int) -> None:
        self._fs = fs
        self._node = node
        self._path = path
        self._mode = mode

    def pread(self, size_bytes: int, position: int) -> bytes:
        self._fs.step("read", self._path)
        return self._node.current.read(size_bytes, position)

    def pwrite(self, data: Data, position: int) -> None:
        self._must_be_writable("write")
        try:
            self._fs.step("write", self._path)
        except StorageFailure as error:
            if error.error_number == errno.ENOSPC:
                self._node.current.write(bytes(data[: len(data) // 2]), position)
            raise
        self._node.current.write(bytes(data), position)
        self._node.modified_ms = self._fs.clock.now_ms()

    def pwritev(self, parts: Sequence[Data], position: int) -> None:
        self.pwrite(b"".join(parts), position)

    def truncate(self, size_bytes: int) -> None:
        self._must_be_writable("truncate")
        self._fs.step("truncate", self._path)
        node = self._node
        if size_bytes < node.current.size_bytes:
            node.before_cuts.append(node.current.copy())
            node.current.cut(size_bytes)
        node.current.size_bytes = size_bytes
        node.modified_ms = self._fs.clock.now_ms()

    def sync(self) -> None:
        self._fs.step("sync", self._path)
        self._node.sync()

    def size_bytes(self) -> int:
        self._fs.step("stat", self._path)
        return self._node.current.size_bytes

    def fileno(self) -> int:
        raise storage_failure("name the descriptor of", self._path, errno.EBADF)

    def _must_be_writable(self, operation: str) -> None:
        if self._mode == READ:
            raise storage_failure(operation, self._path, errno.EBADF)

    def __repr__(self) -> str:
        return f"SimulatedFile({self._path!r})"


_READING: Final = frozenset({"read", "stat", "list"})


class SimulatedFileSystem:
    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = ManualClock() if clock is None else clock
        self.open_files = SecondChance(64)
        self.index_memory = SecondChance(64 << 10)
        self.faults: list[Fault] = []
        self.change_count = 0
        self._boots = 1
        self._steps_left: int | None = None
        self._crashed = False
        # Called at the step that `crash_after` has chosen.
        self.on_crash: Callable[[], None] = lambda: None
        self._root = _DirectoryNode()
        # The entries that each directory has for sure, and the changes since, in order.
        self._durable: dict[_DirectoryNode, dict[str, _Node]] = {self._root: {}}
        self._changes: list[_Change] = []

    def inject(
        self,
        prefix: str,
        error_number: int,
        *,
        operations: Collection[str] | None = None,
        remaining: int | None = None,
        skip: int = 0,
    ) -> Fault:
        """Makes operations (open, read, write, truncate, sync, stat, list, make, rename, remove) under a path fail."""
        if error_number == errno.EROFS and operations is None:
            operations = ("create", "write", "truncate", "make", "rename", "remove")
        fault = Fault(
            prefix=prefix, error_number=error_number, operations=operations, remaining=remaining, skip=skip
        )
        self.faults.append(fault)
        return fault

    def crash_after(self, changes: int | None) -> None:
        """Raises SimulatedCrash instead of the change after that many more (writes, syncs, renames, …); None: never."""
        self._steps_left = changes

    def crash(self, rng: Random) -> SimulatedFileSystem:
        """What a machine finds after a power cut. This file system is dead."""
        self._crashed = True
        entries = {directory: dict(names) for directory, names in self._durable.items()}
        for change in self._changes:
            if change.is_durable or rng.random() < 0.5:
                change.apply(entries.__getitem__)
        reborn = SimulatedFileSystem(self.clock)
        reborn._boots = self._boots + 1

        def rebuild(old: _DirectoryNode, new: _DirectoryNode) -> None:
            new.modified_ms = old.modified_ms
            for name, node in sorted(entries[old].items()):
                if isinstance(node, _DirectoryNode):
                    directory = new.entries[name] = _DirectoryNode()
                    rebuild(node, directory)
                else:
                    new.entries[name] = node.after_crash(rng)
            reborn._durable[new] = dict(new.entries)

        rebuild(self._root, reborn._root)
        return reborn

    def kill(self) -> SimulatedFileSystem:
        """What the next process finds: all of it, with what was not synced still at risk. This one is dead."""
        reborn = self.clone()
        self._crashed = True
        return reborn

    def clone(self) -> SimulatedFileSystem:
        """A copy that goes its own way, without the faults."""
        reborn = SimulatedFileSystem(self.clock)
        reborn._boots = self._boots
        copies: dict[_Node, _Node] = {self._root: reborn._root}

        def copy(node: _Node) -> _Node:
            if node not in copies:
                copies[node] = node.after_kill() if isinstance(node, _FileNode) else _DirectoryNode()
            return copies[node]

        def copy_directory(directory: _DirectoryNode) -> _DirectoryNode:
            copied = copy(directory)
            assert isinstance(copied, _DirectoryNode)
            return copied

        for directory, entries in self._durable.items():
            copied = copy_directory(directory)
            reborn._durable[copied] = {name: copy(node) for name, node in entries.items()}
            copied.entries = {name: copy(node) for name, node in directory.entries.items()}
            copied.modified_ms = directory.modified_ms
        for change in self._changes:
            removed = change.removed and (copy_directory(change.removed[0]), change.removed[1])
            added = change.added and (
                copy_directory(change.added[0]),
                change.added[1],
                copy(change.added[2]),
            )
            reborn._changes.append(_Change(removed, added, change.is_durable))
        return reborn

    def step(self, operation: str, path: str) -> None:
        """Every operation passes here: it may be the one that fails, or the last."""
        if self._crashed:
            raise storage_failure(operation, path, errno.EIO)
        for fault in self.faults:
            if fault.strikes(operation, path):
                raise storage_failure(operation, path, fault.error_number)
        if operation in _READING or operation == "open":
            return
        self.change_count += 1
        if self._steps_left is not None:
            if self._steps_left == 0:
                self._crashed = True
                self.on_crash()
                raise SimulatedCrash(f"before {operation} {path}")
            self._steps_left -= 1

    def open(self, path: str, mode: int) -> SimulatedFile:
        self.step("open", path)
        directory, name = self._parent("open", path)
        node = directory.entries.get(name)
        if node is None:
            if not mode & os.O_CREAT:
                raise storage_failure("open", path, errno.ENOENT)
            self.step("create", path)
            node = _new_file(_Content(), self.clock.now_ms())
            self._change(_Change(None, (directory, name, node)))
        if isinstance(node, _DirectoryNode):
            raise storage_failure("open", path, errno.EISDIR)
        file = SimulatedFile(self, node, path, mode)
        if mode & os.O_TRUNC:
            file.truncate(0)
        return file

    def exists(self, path: str) -> bool:
        self.step("stat", path)
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        self.step("stat", path)
        return isinstance(self._find(path), _DirectoryNode)

    def list_dir(self, path: str) -> list[str]:
        self.step("list", path)
        return sorted(self._directory("list", path).entries)

    def make_dirs(self, path: str, *, syncs: bool = True) -> bool:
        directory = self._root
        is_missing = self._find(path) is None
        made = ""
        for name in _parts(path):
            made += "/" + name
            node = directory.entries.get(name)
            if node is None:
                self.step("make", made)
                node = _DirectoryNode({}, self.clock.now_ms())
                self._durable[node] = {}
                self._change(_Change(None, (directory, name, node)))
                if syncs or made != os.path.normpath(path):
                    self.sync_dir(os.path.dirname(made))
            if isinstance(node, _FileNode):
                raise storage_failure("make directory", path, errno.ENOTDIR)
            directory = node
        return is_missing

    def rename(self, old_path: str, new_path: str) -> None:
        self.step("rename", old_path)
        old_directory, old_name = self._parent("rename", old_path)
        new_directory, new_name = self._parent("rename", new_path)
        node = old_directory.entries.get(old_name)
        if node is None:
            raise storage_failure("rename", old_path, errno.ENOENT)
        if isinstance(node, _DirectoryNode) and new_name in new_directory.entries:
            raise storage_failure("rename", old_path, errno.ENOTEMPTY)
        self._change(_Change((old_directory, old_name), (new_directory, new_name, node)))

    def remove(self, path: str, *, missing_ok: bool = False) -> None:
        self.step("remove", path)
        if missing_ok and not self.exists(path):
            return
        directory, name = self._parent("remove", path)
        if name in directory.entries:
            self._change(_Change((directory, name), None))
        else:
            raise storage_failure("remove", path, errno.ENOENT)

    def remove_tree(self, path: str) -> None:
        if not self.exists(path):
            return
        for name in self.list_dir(path):
            child = f"{path}/{name}"
            if self.is_dir(child):
                self.remove_tree(child)
            else:
                self.remove(child)
        self.remove(path)

    def sync_dir(self, path: str) -> None:
        self.step("sync", path)
        directory = self._directory("sync", path)
        for change in self._changes:
            if change.touches(directory):
                change.is_durable = True
        while self._changes and self._changes[0].is_durable:
            self._changes.pop(0).apply(self._durable_entries)

    def read_file(self, path: str) -> bytes:
        file = self.open(path, READ)
        return file.pread(file.size_bytes(), 0)

    def make_private(self, path: str) -> None:
        """There are no other users."""

    def write_atomically(
        self, path: str, data: Data, *, syncs: bool = True, is_private: bool = False
    ) -> None:
        file = self.open(path + TEMPORARY_SUFFIX, CREATE | os.O_TRUNC)
        file.pwrite(data, 0)
        if syncs:
            file.sync()
        self.rename(path + TEMPORARY_SUFFIX, path)
        if syncs:
            self.sync_dir(os.path.dirname(path))

    def size_of(self, path: str) -> int:
        self.step("stat", path)
        node = self._existing("stat", path)
        return node.current.size_bytes if isinstance(node, _FileNode) else BLOCK_BYTES

    def modified_ms(self, path: str) -> int:
        self.step("stat", path)
        return self._existing("stat", path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.step("write", path)
        self._existing("set the time of", path).modified_ms = modified_ms

    def free_bytes(self, path: str) -> int:
        return DISK_BYTES

    def total_bytes(self, path: str) -> int:
        return DISK_BYTES

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def walk(self) -> Iterator[tuple[str, bytes]]:
        """Path and content of every file."""
        yield from _walk("", self._root)

    def _change(self, change: _Change) -> None:
        change.apply(lambda directory: directory.entries)
        self._changes.append(change)

    def _durable_entries(self, directory: _DirectoryNode) -> dict[str, _Node]:
        return self._durable[directory]

    def _find(self, path: str) -> _Node | None:
        node: _Node = self._root
        for name in _parts(path):
            if isinstance(node, _FileNode) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def _existing(self, operation: str, path: str) -> _Node:
        node = self._find(path)
        if node is None:
            raise storage_failure(operation, path, errno.ENOENT)
        return node

    def _directory(self, operation: str, path: str) -> _DirectoryNode:
        node = self._existing(operation, path)
        if isinstance(node, _FileNode):
            raise storage_failure(operation, path, errno.ENOTDIR)
        return node

    def _parent(self, operation: str, path: str) -> tuple[_DirectoryNode, str]:
        head, name = os.path.split(path.rstrip("/"))
        return self._directory(operation, head), name


def _parts(path: str) -> list[str]:
    assert path.startswith("/"), f"simulated paths are absolute: {path}"
    return [part for part in path.split("/") if part]


def _walk(prefix: str, directory: _DirectoryNode) -> Iterator[tuple[str, bytes]]:
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, _DirectoryNode):
            yield from _walk(f"{prefix}/{name}", node)
        else:
            yield f"{prefix}/{name}", node.current.read(node.current.size_bytes, 0)
