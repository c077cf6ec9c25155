"""A file of a segment: opened at first use, and closed again when too many others are open.

A broker has four files a segment and many segments a partition, but uses few of them at a time. What is closed for
want of room opens again at its next use; a writer's unsynced bytes stay in the page cache meanwhile, and any later
descriptor syncs them.
"""

from __future__ import annotations

import os

from barnabas.log.file_system import CREATE, READ, WRITE, File, FileSystem
from barnabas.primitives.second_chance import Resident


class SegmentFile(Resident):
    __slots__ = ("_file", "_fs", "_writable", "path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        super().__init__()
        self._fs = fs
        self.path = path
        self._file: File | None = None
        self._writable = False

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def reading(self) -> File:
        """The open file; the caller's reference keeps it open. Raises NoSuchFile when there is none."""
        file = self._file
        if file is None:
            return self._open(READ)
        self.recently_used = True
        return file

    def writing(self) -> File:
        """The file, open for writing too. Raises NoSuchFile when there is none."""
        file = self._file
        if file is None or not self._writable:
            return self._open(WRITE)
        self.recently_used = True
        return file

    def creating(self) -> File:
        """The file, open for writing too; it is made where there is none."""
        file = self._file
        if file is None or not self._writable:
            return self._open(CREATE)
        return file

    def size_bytes(self) -> int:
        file = self._file
        return self._fs.size_of(self.path) if file is None else file.size_bytes()

    def close(self) -> None:
        """Lets go of the file; slices of it that are still being sent keep it open."""
        if self._file is not None:
            self._file = None
            self._fs.open_files.discard(self)

    def evict(self) -> None:
        self._file = None

    def rename(self, path: str) -> None:
        """Gives the file a new name; it stays open."""
        self._fs.rename(self.path, path)
        self.path = path

    def relocate(self, directory: str) -> None:
        """Notes that the directory of the file has been renamed."""
        self.path = os.path.join(directory, os.path.basename(self.path))

    def remove(self) -> None:
        self.close()
        self._fs.remove(self.path, missing_ok=True)

    def _open(self, mode: int) -> File:
        file = self._fs.open(self.path, mode)
        self._writable = mode != READ
        self._file = file
        self._fs.open_files.admit(self, 1)
        return file
