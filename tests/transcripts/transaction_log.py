"""Reads the transaction log of a ZooKeeper server while it runs: all changes of the tree, in their order.

    file header   magic "ZKLG", version, id of the database
    transaction   checksum (8), length (4), bytes, "B"; the server writes zeros ahead, so a length of 0 is the end
    bytes         session (8), request (4), zxid (8), time (8), type (4), and what the type has

A transaction is in the file before its client has the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from tests.transcripts.world import Written

_FILE_HEADER_SIZE: Final = 16
_FRAME: Final = Struct(">qi")
_HEADER: Final = Struct(
    ">"
    "q"  # session
    "i"  # request
    "q"  # zxid
    "q"  # time
    "i"  # type
)


class TransactionLog:
    """`folder` is the data directory of the server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "version-2"
        self._position = _FILE_HEADER_SIZE

    def read(self) -> list[tuple[int, Written]]:
        """Changes since the last call, each with its session."""
        files = sorted(self._folder.glob("log.*"))
        if not files:
            return []
        assert len(files) == 1, "the server has begun another log"
        found: list[tuple[int, Written]] = []
        with files[0].open("rb") as file:
            file.seek(self._position)
            while True:
                _, length = _FRAME.unpack(file.read(_FRAME.size).ljust(_FRAME.size, b"\0"))
                data = file.read(length + 1)
                if not length or len(data) <= length or data[-1:] != b"B":
                    return found
                self._position += _FRAME.size + length + 1
                session, _, _, _, kind = _HEADER.unpack_from(data)
                found += [(session, each) for each in _changes(kind, _Reader(data, _HEADER.size))]


class _Reader:
    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position

    def integer(self) -> int:
        self._position += 4
        return int.from_bytes(self._data[self._position - 4 : self._position], "big", signed=True)

    def buffer(self) -> bytes:
        length = max(self.integer(), 0)
        self._position += length
        return self._data[self._position - length : self._position]

    def text(self) -> str:
        return self.buffer().decode()


def _changes(kind: int, reader: _Reader) -> Iterator[Written]:
    match kind:
        case 1 | 15:
            yield Written("create", reader.text(), reader.buffer())
        case 2:
            yield Written("delete", reader.text())
        case 5:
            yield Written("set", reader.text(), reader.buffer())
        case 14:
            # One that was refused has an error for each operation, which are no changes.
            for _ in range(reader.integer()):
                each = reader.integer()
                yield from _changes(each, _Reader(reader.buffer()))
