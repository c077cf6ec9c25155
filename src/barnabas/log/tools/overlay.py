"""A file system whose writes stay in memory: a log can be opened and recovered for reading only.

The tools open a directory in this way while a broker uses it, or after a crash: the log engine recovers it as usual,
over an overlay that is then dropped, and the disk does not change. A file's size is read when it is opened, so that a
growing log stays as it was found.

Recovery truncates log files, which costs nothing here, and writes indexes, which are small. Only written data is kept:
a preallocated index is a size, not bytes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakValueDictionary

from barnabas.log.file_system import READ, Data, File, FileSystem, NoSuchFile, storage_failure
from barnabas.primitives.second_chance import SecondChance


class OverlayFile:
    """The content of the file when it was opened, under the data written since."""

    __slots__ = ("__weakref__", "_base", "_base_bytes", "_on_change", "_size_bytes", "_written")

    def __init__(self, base: File | None, on_change: Callable[[OverlayFile], None]) -> None:
        self._base = base
        self._on_change = on_change
        self._base_bytes = 0 if base is None else base.size_bytes()
        self._size_bytes = self._base_bytes
        # Once anything is written it represents the whole file; bytes beyond its end are zeros.
        self._written: bytearray | None = None

    def pread(self, size_bytes: int, position: int) -> bytes:
        end = min(position + size_bytes, self._size_bytes)
        if position >= end:
            return b""
        if self._written is None:
            stored_end = min(end, self._base_bytes)
            data = b""
            if self._base is not None and position < stored_end:
                data = self._base.pread(stored_end - position, position)
        else:
            data = bytes(self._written[position:end])
        return data.ljust(end - position, b"\0")

    def pwrite(self, data: Data, position: int) -> None:
        self._on_change(self)
        written = self._written
        if written is None:
            stored = b"" if self._base is None else self._base.pread(self._base_bytes, 0)
            written = self._written = bytearray(stored)
        if position > len(written):
            written += bytes(position - len(written))
        written[position : position + len(data)] = data
        self._size_bytes = max(self._size_bytes, position + len(data))

    def pwritev(self, parts: Sequence[Data], position: int) -> None:
        self.pwrite(b"".join(parts), position)

    def truncate(self, size_bytes: int) -> None:
        self._on_change(self)
        self._base_bytes = min(self._base_bytes, size_bytes)
        if self._written is not None:
            del self._written[size_bytes:]
        self._size_bytes = size_bytes

    def rename(self, on_change: Callable[[OverlayFile], None]) -> None:
        self._on_change = on_change
        on_change(self)

    def sync(self) -> None:
        pass

    def size_bytes(self) -> int:
        return self._size_bytes

    def fileno(self) -> int:
        raise AssertionError("a file of an overlay has no descriptor: what it holds is not on the disk")


class OverlayFileSystem:
    """Everything below reads from another file system until it is written; nothing is ever written there."""

    def __init__(self, base: FileSystem) -> None:
        self.open_files = SecondChance(base.open_files.limit)
        self.index_memory = SecondChance(base.index_memory.limit)
        self._base = base
        # A file that was changed lives here; one that is only read lives as long as its reader, as on a disk.
        self._files: dict[str, OverlayFile] = {}
        self._unchanged: WeakValueDictionary[str, OverlayFile] = WeakValueDictionary()
        self._hidden: set[str] = set()
        self._made_dirs: set[str] = set()

    def open(self, path: str, mode: int) -> OverlayFile:
        file = self._files.get(path) or self._unchanged.get(path)
        if file is None:
            if path not in self._hidden and self._base.exists(path):
                file = OverlayFile(self._base.open(path, READ), partial(self._keep, path))
                self._unchanged[path] = file
            elif mode & os.O_CREAT:
                file = self._create(path)
            else:
                raise storage_failure("open", path, errno.ENOENT)
        if mode & os.O_TRUNC:
            file.truncate(0)
        return file

    def _create(self, path: str) -> OverlayFile:
        file = OverlayFile(None, partial(self._keep, path))
        self._keep(path, file)
        return file

    def _keep(self, path: str, file: OverlayFile) -> None:
        self._files[path] = file
        self._hidden.discard(path)

    def exists(self, path: str) -> bool:
        if path in self._files or path in self._made_dirs:
            return True
        return path not in self._hidden and self._base.exists(path)

    def is_dir(self, path: str) -> bool:
        return path in self._made_dirs or self._base.is_dir(path)

    def list_dir(self, path: str) -> list[str]:
        try:
            names = {
                name for name in self._base.list_dir(path) if os.path.join(path, name) not in self._hidden
            }
        except NoSuchFile:
            if path not in self._made_dirs:
                raise
            names = set()
        names.update(os.path.basename(made) for made in self._files if os.path.dirname(made) == path)
        return sorted(names)

    def make_dirs(self, path: str, *, syncs: bool = True) -> bool:
        is_missing = not self.is_dir(path)
        self._made_dirs.add(path)
        return is_missing

    def rename(self, old_path: str, new_path: str) -> None:
        file = self.open(old_path, READ)
        self.remove(old_path)
        file.rename(partial(self._keep, new_path))

    def remove(self, path: str, *, missing_ok: bool = False) -> None:
        if not missing_ok and not self.exists(path):
            raise storage_failure("remove", path, errno.ENOENT)
        self._files.pop(path, None)
        self._unchanged.pop(path, None)
        self._hidden.add(path)

    def remove_tree(self, path: str) -> None:
        for name in self.list_dir(path):
            self.remove(os.path.join(path, name))

    def sync_dir(self, path: str) -> None:
        pass

    def read_file(self, path: str) -> bytes:
        file = self.open(path, READ)
        return file.pread(file.size_bytes(), 0)

    def make_private(self, path: str) -> None:
        pass

    def write_atomically(
        self, path: str, data: Data, *, syncs: bool = True, is_private: bool = False
    ) -> None:
        self._create(path).pwrite(data, 0)

    def size_of(self, path: str) -> int:
        file = self._files.get(path)
        if file is not None:
            return file.size_bytes()
        if path in self._hidden:
            raise storage_failure("stat", path, errno.ENOENT)
        return self._base.size_of(path)

    def modified_ms(self, path: str) -> int:
        return self._base.modified_ms(path) if self._base.exists(path) else 0

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        pass

    def free_bytes(self, path: str) -> int:
        return self._base.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self._base.total_bytes(path)

    def boot_id(self) -> str:
        return self._base.boot_id()
