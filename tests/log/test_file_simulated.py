"""The simulated file system loses what a disk may lose, and nothing else."""

from __future__ import annotations

import errno
from random import Random

import pytest

from barnabas.log.file_system import CREATE, READ, StorageFailure
from tests.log.simulated import BLOCK_BYTES, SimulatedCrash, SimulatedFileSystem

SEEDS = range(60)


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs("/d")
    return fs


def durable_file(fs: SimulatedFileSystem, path: str, content: bytes) -> None:
    file = fs.open(path, CREATE)
    file.pwrite(content, 0)
    file.sync()
    fs.sync_dir(path.rpartition("/")[0])


def crashes(fs: SimulatedFileSystem) -> list[SimulatedFileSystem]:
    """What many crashes leave."""
    return [fs.clone().crash(Random(seed)) for seed in SEEDS]


def test_what_is_synced_survives_every_crash(fs: SimulatedFileSystem) -> None:
    durable_file(fs, "/d/a", b"x" * 10_000)
    fs.open("/d/a", CREATE).pwrite(b"y" * 10_000, 10_000)
    lengths = set()
    for crashed in crashes(fs):
        content = crashed.read_file("/d/a")
        assert content[:10_000] == b"x" * 10_000
        lengths.add(len(content))
    assert min(lengths) == 10_000
    assert max(lengths) == 20_000
    assert len(lengths) > 2


def test_unsynced_blocks_are_kept_lost_zeroed_or_garbled(fs: SimulatedFileSystem) -> None:
    durable_file(fs, "/d/a", b"o" * BLOCK_BYTES)
    fs.open("/d/a", CREATE).pwrite(b"n" * 100, 50)
    outcomes = set()
    for crashed in crashes(fs):
        content = crashed.read_file("/d/a")
        assert content[:50] + content[150:] == b"o" * (BLOCK_BYTES - 100), "bytes beside the write stay"
        outcomes.add(content[50:150])
    assert {b"n" * 100, b"o" * 100, bytes(100)} <= outcomes
    assert len(outcomes) > 3


def test_a_cut_happened_or_not(fs: SimulatedFileSystem) -> None:
    durable_file(fs, "/d/a", b"old" * 1_000)
    file = fs.open("/d/a", CREATE)
    file.truncate(300)
    file.pwrite(b"new" * 100, 300)
    seen = set()
    for crashed in crashes(fs):
        content = crashed.read_file("/d/a")
        if content == b"old" * 1_000:
            seen.add("uncut")
        else:
            assert content[:300] == b"old" * 100
            assert 300 <= len(content) <= 600
            assert b"old" not in content[300:], "what was cut off does not come back behind the cut"
            seen.add("cut")
    assert seen == {"cut", "uncut"}


def test_entries_of_an_unsynced_directory_may_be_undone(fs: SimulatedFileSystem) -> None:
    durable_file(fs, "/d/kept", b"k")
    durable_file(fs, "/d/removed", b"r")
    durable_file(fs, "/d/old", b"o")
    fs.open("/d/made", CREATE).sync()
    fs.remove("/d/removed")
    fs.rename("/d/old", "/d/new")
    seen = set()
    for crashed in crashes(fs):
        names = set(crashed.list_dir("/d"))
        assert "kept" in names
        assert ("old" in names) != ("new" in names), "a rename happens as a whole or not at all"
        assert crashed.read_file("/d/old" if "old" in names else "/d/new") == b"o"
        seen.add(frozenset(names & {"made", "removed", "new"}))
    assert len(seen) == 8


def test_a_synced_directory_is_as_it_was_left(fs: SimulatedFileSystem) -> None:
    durable_file(fs, "/d/old", b"o")
    durable_file(fs, "/d/removed", b"r")
    fs.rename("/d/old", "/d/new")
    fs.remove("/d/removed")
    fs.sync_dir("/d")
    for crashed in crashes(fs):
        assert crashed.list_dir("/d") == ["new"]


def test_a_rename_between_directories_leaves_one_name(fs: SimulatedFileSystem) -> None:
    fs.make_dirs("/e")
    fs.open("/d/a", CREATE).sync()
    fs.rename("/d/a", "/e/a")
    fs.sync_dir("/e")
    for crashed in crashes(fs):
        assert crashed.list_dir("/d") == []
        assert crashed.list_dir("/e") == ["a"]


def test_atomic_writes_leave_the_old_or_the_new(fs: SimulatedFileSystem) -> None:
    fs.write_atomically("/d/a", b"old" * 3_000)
    changes = fs.change_count
    fs.write_atomically("/d/a", b"new" * 3_000)
    steps = fs.change_count - changes
    assert all(crashed.read_file("/d/a") == b"new" * 3_000 for crashed in crashes(fs))
    for step in range(steps):
        for seed in range(10):
            fs = SimulatedFileSystem()
            fs.make_dirs("/d")
            fs.write_atomically("/d/a", b"old" * 3_000)
            fs.crash_after(step)
            with pytest.raises(SimulatedCrash):
                fs.write_atomically("/d/a", b"new" * 3_000)
            assert fs.crash(Random(seed)).read_file("/d/a") in (b"old" * 3_000, b"new" * 3_000)


def test_a_crash_is_the_same_for_the_same_seed(fs: SimulatedFileSystem) -> None:
    durable_file(fs, "/d/a", b"x" * 5_000)
    fs.open("/d/a", CREATE).pwrite(b"y" * 50_000, 4_000)
    for name in "bcdef":
        fs.open(f"/d/{name}", CREATE).pwrite(b"z" * 9_000, 0)
    assert list(fs.clone().crash(Random(7)).walk()) == list(fs.crash(Random(7)).walk())


def test_a_killed_process_loses_nothing_but_the_risk_stays(fs: SimulatedFileSystem) -> None:
    fs.open("/d/a", CREATE).pwrite(b"x" * 9_000, 0)
    fs.remove_tree("/d/none")
    killed = fs.kill()
    assert killed.read_file("/d/a") == b"x" * 9_000
    results = {crashed.exists("/d/a") and crashed.read_file("/d/a") for crashed in crashes(killed)}
    assert False in results
    assert len(results) > 3


def test_after_the_crash_nothing_is_done_any_more(fs: SimulatedFileSystem) -> None:
    file = fs.open("/d/a", CREATE)
    fs.crash_after(1)
    file.pwrite(b"1", 0)
    with pytest.raises(SimulatedCrash):
        file.pwrite(b"2", 1)
    with pytest.raises(StorageFailure):
        file.sync()
    with pytest.raises(StorageFailure):
        fs.open("/d/a", READ)


def test_injected_faults(fs: SimulatedFileSystem) -> None:
    file = fs.open("/d/a", CREATE)
    fs.make_dirs("/dd")
    other = fs.open("/dd/a", CREATE)
    fs.inject("/d", errno.EIO, operations=("sync", "read"), skip=1, remaining=2)
    assert file.pread(1, 0) == b""
    for operation in (file.sync, lambda: file.pread(1, 0)):
        with pytest.raises(StorageFailure) as raised:
            operation()
        assert raised.value.error_number == errno.EIO
        assert raised.value.path == "/d/a"
    file.sync()
    other.sync()


def test_a_full_disk_takes_a_part(fs: SimulatedFileSystem) -> None:
    file = fs.open("/d/a", CREATE)
    fs.inject("/d/a", errno.ENOSPC, operations=("write",), remaining=1)
    with pytest.raises(StorageFailure) as raised:
        file.pwrite(b"123456", 0)
    assert raised.value.error_number == errno.ENOSPC
    assert file.pread(10, 0) == b"123"
    file.pwrite(b"123456", 0)


def test_a_read_only_disk_can_be_read(fs: SimulatedFileSystem) -> None:
    durable_file(fs, "/d/a", b"a")
    fs.inject("/d", errno.EROFS)
    assert fs.read_file("/d/a") == b"a"
    for operation in (
        lambda: fs.open("/d/b", CREATE),
        lambda: fs.open("/d/a", CREATE).pwrite(b"x", 0),
        lambda: fs.rename("/d/a", "/d/b"),
        lambda: fs.remove("/d/a"),
        lambda: fs.make_dirs("/d/e"),
        lambda: fs.write_atomically("/d/a", b"x"),
    ):
        with pytest.raises(StorageFailure):
            operation()
    fs.faults.clear()
    fs.remove("/d/a")
