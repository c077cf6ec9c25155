"""A log directory: who may use it, whose it is, and what its checkpoints say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.log.checkpoints import MetaProperties
from barnabas.log.directory import DirectoryInUse, LogDirectory
from barnabas.log.file_system import DiskFileSystem, storage_failure
from barnabas.log.names import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from barnabas.model import TopicPartition

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


def directory(path: Path) -> LogDirectory:
    return LogDirectory(DiskFileSystem(), str(path), lambda _: None)


def test_one_user_in_this_process(tmp_path: Path) -> None:
    first, second = directory(tmp_path / "data"), directory(tmp_path / "data")
    first.open()
    with pytest.raises(DirectoryInUse, match="is in use"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_one_user_among_processes(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(DirectoryInUse, match="Stop it, or give each broker"):
            directory(tmp_path).open()
        holder.communicate("")
    opened = directory(tmp_path)
    opened.open()
    opened.close()


def test_owner(tmp_path: Path) -> None:
    mine = directory(tmp_path / "deep" / "data")
    mine.open()
    assert mine.meta is None
    mine.claim("cluster", 7, [str(tmp_path)])
    mine.close()
    again = directory(tmp_path / "deep" / "data")
    again.open()
    again.close()
    assert again.meta == MetaProperties(broker_id=7, cluster_id="cluster")


def test_checkpoint_that_is_no_checkpoint_counts_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = directory(tmp_path)
    mine.write_checkpoint(RECOVERY_POINT_CHECKPOINT, {TopicPartition("t", 0): 5})
    assert mine.read_checkpoint(RECOVERY_POINT_CHECKPOINT) == {TopicPartition("t", 0): 5}
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nt 0 five\n")
    assert mine.read_checkpoint(RECOVERY_POINT_CHECKPOINT) == {}
    assert "is ignored" in caplog.text


@pytest.mark.parametrize("name", [LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT])
@pytest.mark.parametrize(
    "damage", [None, b"", b"0\n1\nt 0 9\n", b"0\n2\nt 0 9\nbarnabas:crc32c 0 7\n", bytes(40)]
)
def test_a_damaged_checkpoint_that_matters_is_read_from_its_copy(
    tmp_path: Path, name: str, damage: bytes | None
) -> None:
    mine = directory(tmp_path)
    for each in (LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT):
        mine.write_checkpoint(each, {TopicPartition("t", 0): 5})
    (tmp_path / name).unlink()
    if damage is not None:
        (tmp_path / name).write_bytes(damage)
    assert mine.read_checkpoint(name) == {TopicPartition("t", 0): 5}


def test_checkpoints_of_another_broker_count_though_they_have_no_checksums(tmp_path: Path) -> None:
    mine = directory(tmp_path)
    for name in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        mine.write_checkpoint(name, {TopicPartition("t", 0): 5})
        (tmp_path / name).write_text("0\n1\nt 0 9\n")
    assert mine.read_checkpoint(LOG_START_OFFSET_CHECKPOINT) == {TopicPartition("t", 0): 5}
    assert mine.read_checkpoint(RECOVERY_POINT_CHECKPOINT) == {}
    mine.note_foreign()
    for name in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        assert mine.read_checkpoint(name) == {TopicPartition("t", 0): 9}
        # So they do after a crash, before we have written any.
        assert directory(tmp_path).read_checkpoint(name) == {TopicPartition("t", 0): 9}


def test_fails_once(tmp_path: Path) -> None:
    told: list[LogDirectory] = []
    mine = LogDirectory(DiskFileSystem(), str(tmp_path), told.append)
    mine.open()
    for _ in range(2):
        mine.fail(storage_failure("write", "x", 5))
    assert told == [mine]
    assert mine.is_offline
    # The lock is free for whoever repairs the directory.
    other = directory(tmp_path)
    other.open()
    other.close()
