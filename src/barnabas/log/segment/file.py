"""A file of a segment: opened at first use, and closed again when too many others are open.

A broker has four files per segment and many segments per partition, but uses few of them at a time. A file that was
closed for lack of room opens again at its next use; a writer's unsynced bytes stay in the page cache, and any later
descriptor syncs them.
"""

from __future__ import annotations

import os

from barnabas.log.file_system import CREATE, READ, WRITE, File, FileSystem
from barnabas.primitives.second_chance import Resident


class SegmentFile(Resident):
    __slots__ = ("_fs", "_reader", "_writer", "path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        super().__init__()
        self._fs = fs
        self.path = path
        # The file, open for writing too, or for reading alone.
        self._writer: File | None = None
        self._reader: File | None = None

    @property
    def is_open(self) -> bool:
        return self._writer is not None or self._reader is not None

    def reading(self) -> File:
        """The open file; the caller's reference keeps it open. Raises NoSuchFile when there is none."""
        file = self._writer
        if file is None:
            file = self._reader
        if file is None:
            file = self._fs.open(self.path, READ)
            self._swap_reader(file)
            self._fs.open_files.admit(self, 1)
        else:
            self.recently_used = True
        return file

    def writing(self) -> File:
        """The file, open for writing too. Raises NoSuchFile when there is none."""
        file = self._writer
        if file is None:
            return self._open_writer(WRITE)
        self.recently_used = True
        return file

    def creating(self) -> File:
        """The file, open for writing too; creates a missing file."""
        file = self._writer
        if file is None:
            return self._open_writer(CREATE)
        self.recently_used = True
        return file

    def size_bytes(self) -> int:
        return self.reading().size_bytes() if self.is_open else self._fs.size_of(self.path)

    def close(self) -> None:
        """Releases the file; slices that are still being sent keep it open."""
        if self.is_open:
            self.evict()
            self._fs.open_files.discard(self)

    def evict(self) -> None:
        self._swap_writer(None)
        self._swap_reader(None)

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

    def _open_writer(self, mode: int) -> File:
        file = self._fs.open(self.path, mode)
        self._swap_writer(file)
        self._swap_reader(None)
        self._fs.open_files.admit(self, 1)
        return file

    # A compiled assignment drops the old value before the new one is in its place. Were that the last reference, the
    # file would be closed right there, which lets other threads run, and they would find a file that is gone. So the
    # old one is held beyond the assignment, by being returned.

    def _swap_writer(self, file: File | None) -> File | None:
        old = self._writer
        self._writer = file
        return old

    def _swap_reader(self, file: File | None) -> File | None:
        old = self._reader
        self._reader = file
        return old
