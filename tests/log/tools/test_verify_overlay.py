"""An overlay behaves as the file system below it, and leaves that one as it was."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnabas.log.file_system import CREATE, READ, WRITE, DiskFileSystem, NoSuchFile
from barnabas.log.tools.overlay import OverlayFileSystem


def test_file_reads_as_a_disk_file_after_the_same_writes(tmp_path: Path) -> None:
    rng = random.Random(2)
    disk = DiskFileSystem()
    for round_ in range(50):
        original, changed = str(tmp_path / f"{round_}-a"), str(tmp_path / f"{round_}-b")
        content = rng.randbytes(rng.randrange(200))
        for path in (original, changed):
            disk.open(path, CREATE).pwrite(content, 0)
        overlay = OverlayFileSystem(disk)
        ours, theirs = overlay.open(original, WRITE), disk.open(changed, WRITE)
        for _ in range(8):
            position = rng.randrange(250)
            if rng.random() < 0.5:
                data = rng.randbytes(rng.randrange(60))
                ours.pwrite(data, position)
                theirs.pwrite(data, position)
            else:
                ours.truncate(position)
                theirs.truncate(position)
            assert ours.size_bytes() == theirs.size_bytes()
            assert ours.pread(1000, 0) == theirs.pread(1000, 0)
            assert ours.pread(40, position) == theirs.pread(40, position)
        assert disk.read_file(original) == content


def test_names(tmp_path: Path) -> None:
    disk = DiskFileSystem()
    folder = str(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode())
    overlay = OverlayFileSystem(disk)
    overlay.remove(folder + "/a")
    overlay.rename(folder + "/b", folder + "/z")
    overlay.write_atomically(folder + "/a2", b"new")
    assert overlay.list_dir(folder) == ["a2", "c", "z"]
    assert overlay.read_file(folder + "/z") == b"b"
    assert overlay.size_of(folder + "/a2") == 3
    assert not overlay.exists(folder + "/b")
    with pytest.raises(NoSuchFile):
        overlay.open(folder + "/a", READ)
    with pytest.raises(NoSuchFile):
        overlay.remove(folder + "/a")
    overlay.open(folder + "/a", CREATE)
    assert overlay.read_file(folder + "/a") == b""
    assert disk.list_dir(folder) == ["a", "b", "c"]
    assert (tmp_path / "b").read_bytes() == b"b"


def test_growth_below_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first")
    file = OverlayFileSystem(DiskFileSystem()).open(str(path), WRITE)
    path.write_bytes(b"first and second")
    assert file.pread(100, 0) == b"first"
