"""A part of an open file, which the log returns and a connection or a reader uses.

A slice owns a reference to its open file. The file's descriptor is closed when the last reference to the file is
dropped: the interpreter's reference count is the only one. A segment may therefore be deleted, or its file closed to
save descriptors, while a slice of it is still being sent, and the descriptor cannot be reused for another topic's file
in between.

Code that uses `fileno` must keep the file in an attribute or a container until the system call returns. A local
variable is not enough: compiled code drops it after its last use, which is the call of `fileno` itself.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.errors import KafkaStorageError


class OpenFile(Protocol):
    def pread(self, size_bytes: int, position: int) -> bytes:
        """The bytes at the position, fewer where the file ends before."""

    def fileno(self) -> int:
        """The descriptor, good as long as a reference to the file is held beyond this call."""


class FileSlice:
    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: OpenFile, position: int, size_bytes: int) -> None:
        assert position >= 0
        assert size_bytes >= 0
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def read(self) -> bytes:
        """All bytes of the slice; raises KafkaStorageError if the file was truncated in the meantime."""
        data = self.file.pread(self.size_bytes, self.position)
        if len(data) != self.size_bytes:
            raise KafkaStorageError(
                f"a slice of {self.size_bytes} bytes at position {self.position} has lost all but {len(data)}:"
                " its file was truncated"
            )
        return data

    def __repr__(self) -> str:
        return f"FileSlice({self.size_bytes} bytes at {self.position} of {self.file!r})"
