"""One contract for the disk and for what stands in for it in tests."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.log.file_system import (
    CREATE,
    READ,
    WRITE,
    DiskFile,
    DiskFileSystem,
    FileSystem,
    NoSuchFile,
    StorageFailure,
)
from barnabas.log.segment.file import SegmentFile
from tests.log.simulated import SimulatedFileSystem


@pytest.fixture(params=["disk", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    """A file system and an empty directory on it."""
    if request.param == "disk":
        return DiskFileSystem(), str(tmp_path)
    fs = SimulatedFileSystem()
    fs.make_dirs("/data")
    return fs, "/data"


def test_bytes_are_read_back_where_they_were_written(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    file = fs.open(f"{directory}/a", CREATE)
    file.pwrite(b"world", 6)
    file.pwrite(bytearray(b"hello"), 0)
    file.pwrite(memoryview(b"--there--")[2:7], 6)
    assert file.pread(100, 0) == b"hello\0there"
    assert file.pread(5, 6) == b"there"
    assert file.pread(5, 11) == b""
    assert file.size_bytes() == fs.size_of(f"{directory}/a") == 11
    file.sync()
    assert fs.read_file(f"{directory}/a") == b"hello\0there"


def test_a_file_is_cut_and_extended_with_zeros(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    file = fs.open(f"{directory}/a", CREATE)
    file.pwrite(b"x" * 10_000, 0)
    file.truncate(5)
    file.truncate(9_000)
    assert file.pread(10_000, 0) == b"x" * 5 + bytes(8_995)


def test_a_file_that_is_not_there(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    path = f"{directory}/missing"
    for mode in (READ, WRITE):
        with pytest.raises(NoSuchFile) as raised:
            fs.open(path, mode)
        assert raised.value.error_number == errno.ENOENT
        assert raised.value.path == path
        assert path in str(raised.value)
    assert not fs.exists(path)
    assert not fs.exists(f"{path}/below")
    assert not fs.is_dir(path)
    for operation in (fs.size_of, fs.modified_ms, fs.read_file, fs.remove, fs.list_dir, fs.sync_dir):
        with pytest.raises(NoSuchFile):
            operation(path)
    with pytest.raises(NoSuchFile):
        fs.rename(path, f"{directory}/other")
    fs.remove(path, missing_ok=True)
    fs.remove_tree(path)


def test_a_file_open_for_reading_refuses_writes(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    fs.open(f"{directory}/a", CREATE)
    file = fs.open(f"{directory}/a", READ)
    with pytest.raises(StorageFailure, match="cannot write"):
        file.pwrite(b"x", 0)
    with pytest.raises(StorageFailure, match="cannot truncate"):
        file.truncate(0)


def test_files_are_renamed_replaced_and_removed(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    old = fs.open(f"{directory}/old", CREATE)
    old.pwrite(b"old", 0)
    fs.open(f"{directory}/new", CREATE).pwrite(b"new", 0)
    fs.rename(f"{directory}/old", f"{directory}/new")
    assert fs.list_dir(directory) == ["new"]
    assert fs.read_file(f"{directory}/new") == b"old"
    fs.remove(f"{directory}/new")
    assert fs.list_dir(directory) == []
    assert old.pread(3, 0) == b"old", "an open file outlives its name"


def test_directories_are_made_listed_renamed_and_removed(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    fs.make_dirs(f"{directory}/a/b")
    fs.make_dirs(f"{directory}/a/b")
    fs.open(f"{directory}/a/b/f2", CREATE)
    fs.open(f"{directory}/a/b/f1", CREATE)
    fs.sync_dir(f"{directory}/a/b")
    assert fs.is_dir(f"{directory}/a/b")
    assert not fs.is_dir(f"{directory}/a/b/f1")
    assert fs.list_dir(f"{directory}/a/b") == ["f1", "f2"]
    fs.rename(f"{directory}/a", f"{directory}/c")
    assert fs.list_dir(f"{directory}/c/b") == ["f1", "f2"]
    fs.remove_tree(f"{directory}/c")
    assert fs.list_dir(directory) == []


def test_two_brokers_of_a_host_make_the_same_directory_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def after_another(path: str) -> None:
        mkdir(path)
        mkdir(path)

    monkeypatch.setattr(os, "mkdir", after_another)
    DiskFileSystem().make_dirs(str(tmp_path / "brokers" / "1"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailure, match=r"File exists|Not a directory"):
        DiskFileSystem().make_dirs(str(tmp_path / "file" / "1"))


def test_a_directory_is_removed_while_others_remove_files_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    for number in range(5):
        (directory / str(number)).touch()
    unlink = os.unlink

    def unlink_too_late(name: Any, *arguments: Any, **options: Any) -> None:
        unlink(name, *arguments, **options)
        raise FileNotFoundError(errno.ENOENT, "gone already", name)

    monkeypatch.setattr(os, "unlink", unlink_too_late)
    DiskFileSystem().remove_tree(str(directory))
    assert not directory.exists()


def test_a_file_is_written_atomically(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    fs.write_atomically(f"{directory}/a", b"long content")
    fs.write_atomically(f"{directory}/a", bytearray(b"short"))
    assert fs.read_file(f"{directory}/a") == b"short"
    assert fs.list_dir(directory) == ["a"]


def test_times_and_room(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    fs.open(f"{directory}/a", CREATE)
    fs.set_modified_ms(f"{directory}/a", 1_234_567)
    assert fs.modified_ms(f"{directory}/a") == 1_234_567
    assert 0 <= fs.free_bytes(directory) <= fs.total_bytes(directory)


def leads_to(descriptor: int, path: Path) -> bool:
    """Whether the descriptor is open, and still the file's: another thread of the test run may have got its number."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def test_a_descriptor_lives_as_long_as_its_file(tmp_path: Path) -> None:
    file = DiskFile(str(tmp_path / "a"), CREATE)
    another = file
    descriptor = file.fileno()
    del file
    assert leads_to(descriptor, tmp_path / "a")
    del another
    assert not leads_to(descriptor, tmp_path / "a")


class PartialWrites:
    """Makes os.pwrite write one byte at a time, and then refuse."""

    def __init__(self, room_bytes: int) -> None:
        self._room_bytes = room_bytes
        self._pwrite = os.pwrite

    def __call__(self, descriptor: int, data: bytes, position: int) -> int:
        if self._room_bytes == 0:
            raise OSError(errno.ENOSPC, "no room")
        self._room_bytes -= 1
        return self._pwrite(descriptor, bytes(data[:1]), position)


def test_a_write_goes_on_after_a_part_and_tells_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a")
    file = DiskFile(path, CREATE)
    monkeypatch.setattr(os, "pwrite", PartialWrites(8))
    file.pwrite(b"12345", 0)
    assert file.pread(10, 0) == b"12345"
    with pytest.raises(StorageFailure) as raised:
        file.pwrite(b"6789", 5)
    assert raised.value.error_number == errno.ENOSPC
    assert raised.value.path == path
    assert file.pread(10, 0) == b"12345678"


def test_data_in_parts_is_written_as_one(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    file = fs.open(f"{directory}/a", CREATE)
    file.pwrite(b"0123456789", 0)
    file.pwritev((b"ab", memoryview(b"xcdex")[1:4]), 3)
    assert file.pread(20, 0) == b"012abcde89"


def test_parts_go_on_after_a_part_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DiskFile(str(tmp_path / "a"), CREATE)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda at, parts, position: pwrite(at, b"".join(parts)[:3], position))
    file.pwritev((b"01", b"234", b"56"), 1)
    assert file.pread(20, 1) == b"0123456"


def test_a_read_goes_on_after_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DiskFile(str(tmp_path / "a"), CREATE)
    file.pwrite(b"0123456789", 0)
    pread = os.pread
    monkeypatch.setattr(
        os, "pread", lambda descriptor, size, position: pread(descriptor, min(size, 3), position)
    )
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(100, 4) == b"456789"


@pytest.fixture
def small_pool(tmp_path: Path) -> Iterator[tuple[DiskFileSystem, list[SegmentFile]]]:
    fs = DiskFileSystem(open_files_max=3)
    files = [SegmentFile(fs, str(tmp_path / str(number))) for number in range(8)]
    for number, file in enumerate(files):
        file.creating().pwrite(b"%d" % number, 0)
    yield fs, files
    for file in files:
        file.close()
    assert len(fs.open_files) == 0


def test_few_files_are_open_at_a_time(small_pool: tuple[DiskFileSystem, list[SegmentFile]]) -> None:
    fs, files = small_pool
    for _ in range(3):
        for number, file in enumerate(files):
            assert file.reading().pread(10, 0) == b"%d" % number
            assert sum(file.is_open for file in files) == len(fs.open_files) <= 3


def test_a_file_in_use_survives_its_eviction(small_pool: tuple[DiskFileSystem, list[SegmentFile]]) -> None:
    _, files = small_pool
    held = files[0].reading()
    for file in files[1:]:
        file.reading()
    assert not files[0].is_open
    assert held.pread(10, 0) == b"0"


def test_a_file_opened_for_reading_opens_again_for_writing(
    small_pool: tuple[DiskFileSystem, list[SegmentFile]],
) -> None:
    _, files = small_pool
    files[0].close()
    files[0].reading()
    files[0].writing().pwrite(b"new", 0)
    assert files[0].reading().pread(10, 0) == b"new"


def test_writing_does_not_make_a_file_that_was_lost(
    small_pool: tuple[DiskFileSystem, list[SegmentFile]],
) -> None:
    _, files = small_pool
    files[0].remove()
    with pytest.raises(NoSuchFile):
        files[0].writing()
    files[0].creating()


def test_a_renamed_file_stays_open(small_pool: tuple[DiskFileSystem, list[SegmentFile]]) -> None:
    _, files = small_pool
    path = files[7].path
    held = files[7].reading()
    files[7].rename(path + ".deleted")
    assert files[7].reading() is held
    assert files[7].size_bytes() == 1
    assert not os.path.exists(path)
