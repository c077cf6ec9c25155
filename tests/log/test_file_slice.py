from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.log.file_system import CREATE, READ, DiskFile
from barnabas.primitives.file_slice import FileSlice
from tests.log.test_file_system import leads_to


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


def test_a_slice_keeps_its_file_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    file = DiskFile(str(path), READ)
    part = FileSlice(file, 0, 10)
    descriptor = file.fileno()
    del file
    assert leads_to(descriptor, path)
    path.rename(tmp_path / "b")
    assert part.read() == b"0123456789"
    del part
    assert not leads_to(descriptor, tmp_path / "b")
