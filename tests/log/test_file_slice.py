from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.file_system import CREATE, DiskFile
from barnabas.primitives.file_slice import FileSlice


def test_a_slice_reads_its_part(tmp_path: Path) -> None:
    file = DiskFile(str(tmp_path / "a"), CREATE)
    file.pwrite(b"0123456789", 0)
    part = FileSlice(file, 2, 5)
    assert part.read() == b"23456"
    assert len(part) == part.size_bytes == 5


def test_a_slice_of_a_file_that_was_cut_tells(tmp_path: Path) -> None:
    file = DiskFile(str(tmp_path / "a"), CREATE)
    file.pwrite(b"0123456789", 0)
    part = FileSlice(file, 2, 5)
    file.truncate(4)
    with pytest.raises(KafkaStorageError, match="lost all but 2"):
        part.read()


def test_a_slice_keeps_a_deleted_file_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = DiskFile(str(path), CREATE)
    file.pwrite(b"0123456789", 0)
    part = FileSlice(file, 0, 10)
    descriptor = file.fileno()
    del file
    path.unlink()
    assert part.read() == b"0123456789"
    del part
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
