from __future__ import annotations

import os
from pathlib import Path


class PlainFile:
    """An open file as the log has them: closed with the last reference."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR)

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, size_bytes: int, position: int) -> bytes:
        return os.pread(self._descriptor, size_bytes, position)

    def __del__(self) -> None:
        os.close(self._descriptor)
