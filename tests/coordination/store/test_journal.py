"""The journal of the embedded store: every kind of damage to its files, crashes at every step, disks that fail."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from barnabas.coordination.store import journal as journal_module
from barnabas.coordination.store.contract import NO_OWNER, Create, Delete, Operation, SetData, StoreInUse
from barnabas.coordination.store.journal import COPY_FILE, LEGACY_FILE, STORE_FILE, Journal
from barnabas.coordination.store.journal_format import PREAMBLE, StoreDamaged, read_copy
from barnabas.coordination.store.transaction import Node, Transaction
from barnabas.log.file_system import DiskFileSystem, FileSystem, StorageFailure
from tests.log.simulated import SimulatedCrash, SimulatedFileSystem
from tests.sampling import cases

FILES = (STORE_FILE, COPY_FILE)


class Writer:
    """A store's thread: the tree, and transactions one after the other."""

    def __init__(
        self, directories: list[str], fs: FileSystem, *, locks: bool = True, accepts: str = ""
    ) -> None:
        self.journal = Journal(directories, fs, accepted_losses=[accepts], locks=locks)
        self.nodes, self.zxid = self.journal.open(now_ms=1_000)

    def write(self, *operations: Operation) -> None:
        transaction = Transaction(self.nodes, zxid=self.zxid + 1, now_ms=2_000, owner=NO_OWNER)
        for operation in operations:
            transaction.run(operation)
        self.journal.commit([transaction])
        self.zxid += 1
        for path, node in transaction.changes.items():
            if node is None:
                del self.nodes[path]
            else:
                self.nodes[path] = node

    def close(self) -> None:
        self.journal.close()


def on_disk(directory: Path, **options: str) -> Writer:
    return Writer([str(directory)], DiskFileSystem(), **options)  # type: ignore[arg-type]


def data_of(nodes: dict[str, Node]) -> dict[str, bytes]:
    return {path: node.data for path, node in nodes.items()}


def fill(writer: Writer) -> dict[str, bytes]:
    writer.write(Create("/a", bytes(range(256))), Create("/a/b", "ü".encode()), Create("/gone"))
    for number in range(5):
        writer.write(SetData("/a/b", b"%d" % number))
    writer.write(Delete("/gone"))
    return data_of(writer.nodes)


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, dict[str, bytes]]:
    directory = tmp_path / "filled"
    directory.mkdir()
    with closing(on_disk(directory)) as writer:
        return directory, fill(writer)


def damages(size: int) -> Iterator[tuple[str, Callable[[bytes], bytes | None]]]:
    rng = Random(3)
    for position in range(rng.randrange(3), size, cases(3, fast=17)):
        bit = 1 << rng.randrange(8)

        def flip(data: bytes, position: int = position, bit: int = bit) -> bytes:
            return data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :]

        yield f"bit {bit} of byte {position}", flip
    for length in range(0, size, cases(7, fast=29)):
        yield f"cut to {length}", lambda data, length=length: data[:length]  # type: ignore[misc]
    for count in (1, 15, 16, 17, 500):
        yield f"{count} bytes more", lambda data, count=count: data + rng.randbytes(count)  # type: ignore[misc]
        yield f"{count} zeros more", lambda data, count=count: data + bytes(count)  # type: ignore[misc]
    yield "removed", lambda data: None


@pytest.mark.parametrize("name", FILES)
def test_no_damage_to_one_file_loses_anything(name: str, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedFileSystem()
    disk.make_dirs("/disk")
    with closing(Writer(["/disk"], disk, locks=False)) as writer:
        expected = fill(writer)
    path = f"/disk/{name}"
    whole = disk.read_file(path)
    for what, damage in damages(len(whole)):
        fs = disk.clone()
        damaged = damage(whole)
        if damaged is None:
            fs.remove(path)
        else:
            fs.write_atomically(path, damaged)
        caplog.clear()
        with closing(Writer(["/disk"], fs, locks=False)) as writer:
            assert data_of(writer.nodes) == expected, what
            writer.write(SetData("/a", b"after"))
        # Both copies are as good as before.
        assert fs.read_file(f"/disk/{STORE_FILE}") == fs.read_file(f"/disk/{COPY_FILE}"), what
        if not what.startswith("cut"):
            assert [each.message for each in caplog.records if path in each.message], what


def test_a_cut_between_two_changes_is_noticed(filled: tuple[Path, dict[str, bytes]]) -> None:
    directory, expected = filled
    data = (directory / STORE_FILE).read_bytes()
    (_, end) = read_copy("", data).payloads[-2]
    (directory / STORE_FILE).write_bytes(data[:end])
    with closing(on_disk(directory)) as writer:
        assert data_of(writer.nodes) == expected


def test_damage_to_both_copies_waits_for_a_person(filled: tuple[Path, dict[str, bytes]]) -> None:
    directory, expected = filled
    paths = [directory / name for name in FILES]
    whole = paths[0].read_bytes()
    payloads = read_copy("", whole).payloads
    for path, (start, _) in zip(paths, payloads[-4:], strict=False):
        path.write_bytes(whole[:start] + b"?" + whole[start + 1 :])
    damaged = [path.read_bytes() for path in paths]
    with pytest.raises(StoreDamaged) as caught:
        on_disk(directory)
    text = str(caught.value)
    assert str(paths[0]) in text
    assert str(paths[1]) in text
    assert f"--override barnabas.accept.loss={paths[0]}" in text
    # A refusal leaves everything as it was.
    assert [path.read_bytes() for path in paths] == damaged
    with closing(on_disk(directory, accepts=str(paths[0]))) as writer:
        assert writer.journal.may_have_lost
        # The second copy was damaged later: it goes further.
        assert writer.nodes["/a/b"].data == b"2"
        assert writer.nodes["/a"].data == expected["/a"]
    assert Path(f"{paths[0]}.damaged").read_bytes() == damaged[0]
    with closing(on_disk(directory)) as writer:
        assert not writer.journal.may_have_lost


def test_the_same_damage_in_both_copies_is_no_crash(filled: tuple[Path, dict[str, bytes]]) -> None:
    """Both go equally far, as after a crash in mid-commit. But intact changes follow, which were reported."""
    directory, expected = filled
    paths = [directory / name for name in FILES]
    whole = paths[0].read_bytes()
    payloads = read_copy("", whole).payloads
    for start, _ in payloads[:-1]:
        for path in paths:
            path.write_bytes(whole[:start] + b"?" + whole[start + 1 :])
        with pytest.raises(StoreDamaged, match=r"damaged in every copy"):
            on_disk(directory)
    # A last change that is torn in both is what a crash leaves.
    for path in paths:
        path.write_bytes(whole[: payloads[-1][1] - 1])
    with closing(on_disk(directory)) as writer:
        assert data_of(writer.nodes).items() >= expected.items()


@pytest.mark.parametrize("content", [b"", b"nonsense" * 100, PREAMBLE, b"BARNABAS STORE 9\nwhatever"])
def test_copies_that_tell_nothing_are_no_reason_to_begin_anew(tmp_path: Path, content: bytes) -> None:
    for name in FILES:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreDamaged, match=r"barnabas\.accept\.loss") as caught:
        on_disk(tmp_path)
    if b"9" in content:
        assert "has format 9, and this release knows 2" in str(caught.value)
    assert (tmp_path / STORE_FILE).read_bytes() == content
    with closing(on_disk(tmp_path, accepts=str(tmp_path / COPY_FILE))) as writer:
        assert list(writer.nodes) == ["/"]
        assert writer.journal.may_have_lost


def test_a_second_journal_on_the_directory_is_refused(tmp_path: Path) -> None:
    with closing(on_disk(tmp_path)), pytest.raises(StoreInUse, match=str(tmp_path)):
        on_disk(tmp_path)
    on_disk(tmp_path).close()


def test_a_journal_that_has_grown_becomes_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "COMMITS_BYTES_MAX", 20_000)
    with closing(on_disk(tmp_path)) as writer:
        writer.write(Create("/a"))
        for number in range(1_000):
            writer.write(SetData("/a", b"%d" % number))
            assert (tmp_path / STORE_FILE).stat().st_size < 30_000
        before = dict(writer.nodes)
    with closing(on_disk(tmp_path)) as writer:
        assert writer.nodes == before


def test_copies_are_in_different_directories_where_there_are_some(tmp_path: Path) -> None:
    directories = [tmp_path / name for name in "abc"]
    for each in directories:
        each.mkdir()
    a, b, c = (str(each) for each in directories)
    with closing(Writer([a, b, c], DiskFileSystem())) as writer:
        expected = fill(writer)
    assert [os.listdir(each) for each in directories] == [[STORE_FILE], [STORE_FILE], []]
    # In whichever order they are named, and whichever of them is gone.
    for order in ([b, a, c], [c, b], [c], [a, b]):
        if order == [c]:
            (directories[2] / STORE_FILE).unlink()
            with closing(Writer([b, c], DiskFileSystem())):
                pass
        with closing(Writer(order, DiskFileSystem())) as writer:
            assert data_of(writer.nodes) == expected, order
    assert not (directories[0] / COPY_FILE).exists()


def test_a_disk_that_fails_takes_one_copy_along(caplog: pytest.LogCaptureFixture) -> None:
    fs = SimulatedFileSystem()
    for directory in "ab":
        fs.make_dirs(f"/{directory}")
    writer = Writer(["/a", "/b"], fs, locks=False)
    expected = fill(writer)
    fs.inject("/a", errno.EIO)
    writer.write(Create("/later"))
    assert "The store continues with one copy, /b/" in caplog.text
    writer.write(Create("/latest"))
    writer.close()
    fs.faults.clear()
    caplog.clear()
    writer = Writer(["/a", "/b"], fs, locks=False)
    assert data_of(writer.nodes) == {**expected, "/later": b"", "/latest": b""}
    assert fs.read_file(f"/a/{STORE_FILE}") == fs.read_file(f"/b/{STORE_FILE}")
    fs.inject("/", errno.ENOSPC, operations=["write"])
    with pytest.raises(StorageFailure, match="No space left"):
        writer.write(Create("/never"))
    writer.close()


def test_a_copy_that_is_left_behind_does_not_come_back() -> None:
    """A disk that was full for a moment leaves a copy out of date, which must not be taken when the other is lost."""
    fs = SimulatedFileSystem()
    fs.make_dirs("/disk")
    writer = Writer(["/disk"], fs, locks=False)
    fill(writer)
    fs.inject(f"/disk/{STORE_FILE}", errno.ENOSPC, operations=["write"])
    writer.write(Create("/later"))
    writer.close()
    fs.faults.clear()
    assert not fs.exists(f"/disk/{STORE_FILE}")
    writer = Writer(["/disk"], fs, locks=False)
    assert "/later" in writer.nodes
    assert fs.read_file(f"/disk/{STORE_FILE}") == fs.read_file(f"/disk/{COPY_FILE}")
    writer.close()


def test_a_crash_at_any_step_loses_nothing_that_was_reported() -> None:
    """A power cut loses any part of what was not synced; each step of a life with two starts is the last one once."""
    for step in range(200):
        fs = SimulatedFileSystem()
        fs.make_dirs("/disk")
        reported = 0
        fs.crash_after(step)
        is_over = False
        try:
            for _ in range(2):
                writer = Writer(["/disk"], fs, locks=False)
                if reported == 0 and "/a" not in writer.nodes:
                    writer.write(Create("/a", b"0"))
                for number in range(reported + 1, reported + 4):
                    writer.write(SetData("/a", b"%d" % number))
                    reported = number
                writer.close()
            is_over = True
        except (SimulatedCrash, AssertionError):
            pass
        for seed in range(4):
            after = Writer(["/disk"], fs.clone().crash(Random(seed)), locks=False)
            found = int(after.nodes["/a"].data) if "/a" in after.nodes else 0
            assert reported <= found <= reported + 1, (step, seed)
            after.close()
        if is_over:
            return
    raise AssertionError("200 steps are not enough for six commits")


LEGACY_SCHEMA = """
CREATE TABLE node (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
    ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL, version INTEGER NOT NULL, children_created INTEGER NOT NULL,
    ephemeral_owner INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE last (zxid INTEGER NOT NULL);
INSERT INTO last VALUES (4294967299);
PRAGMA user_version = 1;
"""


def make_legacy(directory: Path, *, crashed: bool) -> None:
    """A store as version 0.1 leaves it; after a crash its content stands in the write-ahead file alone."""
    path = directory / LEGACY_FILE
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(LEGACY_SCHEMA)
    for name, data in (("/", b""), ("/a", b"\x00\xff"), ("/a/b", b"1")):
        row = (name, data, 1, 2, 3, 4, 5, 6, 1, 0)
        database.execute(f"INSERT INTO node VALUES ({', '.join('?' * 10)})", row)
    if not crashed:
        database.close()
        return
    saved = {each: each.read_bytes() for each in directory.iterdir()}
    database.close()
    for each, data in saved.items():
        each.write_bytes(data)
    assert (directory / f"{LEGACY_FILE}-wal").stat().st_size > 0


@pytest.mark.parametrize("crashed", [False, True])
def test_a_store_of_version_0_1_is_taken_over(
    tmp_path: Path, crashed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    make_legacy(tmp_path, crashed=crashed)
    with closing(on_disk(tmp_path)) as writer:
        assert writer.nodes["/a"] == Node(b"\x00\xff", 1, 2, 3, 4, 5, 6, 1, 0, 1)
        assert writer.zxid >> 32 == 2
        writer.write(SetData("/a/b", b"2"))
    assert f"{tmp_path / LEGACY_FILE}.moved" in caplog.text
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, f"{LEGACY_FILE}.moved"])
    with closing(on_disk(tmp_path)) as writer:
        assert data_of(writer.nodes) == {"/": b"", "/a": b"\x00\xff", "/a/b": b"2"}


def test_a_damaged_store_of_version_0_1_is_named(tmp_path: Path) -> None:
    (tmp_path / LEGACY_FILE).write_bytes(b"these are not the bytes of a database" * 100)
    with pytest.raises(StoreDamaged, match=f"{LEGACY_FILE} cannot be read: file is not a database"):
        on_disk(tmp_path)
    assert os.listdir(tmp_path) == [LEGACY_FILE]


def test_an_orphan_is_damage(tmp_path: Path) -> None:
    make_legacy(tmp_path, crashed=False)
    database = sqlite3.connect(tmp_path / LEGACY_FILE, isolation_level=None)
    database.execute("DELETE FROM node WHERE path = '/a'")
    database.close()
    with pytest.raises(StoreDamaged, match="'/a/b' has no parent"):
        on_disk(tmp_path)


def test_only_the_user_of_the_broker_may_read_the_store(tmp_path: Path) -> None:
    """It holds keys of users and passwords. An older version has left the files open to all."""
    writer = on_disk(tmp_path)
    writer.write(Create("/a", b"secret"))
    writer.close()
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in FILES] == [0o600, 0o600]
    for name in FILES:
        (tmp_path / name).chmod(0o644)
        (tmp_path / f"{name}.tmp").touch(0o644)
    writer = on_disk(tmp_path)
    assert data_of(writer.nodes)["/a"] == b"secret"
    writer.close()
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in FILES] == [0o600, 0o600]
    (tmp_path / COPY_FILE).unlink()
    on_disk(tmp_path).close()
    assert (tmp_path / COPY_FILE).stat().st_mode & 0o777 == 0o600
