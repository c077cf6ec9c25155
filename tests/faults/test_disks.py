"""A disk that fails or is full takes its own partitions with it and no others; what was acknowledged comes back.

Three ways to have such a disk: a limit on the size of files (EFBIG), which everybody may set; a file system in the
broker's place of the real one that refuses to write (EIO, ENOSPC); and a small tmpfs of the broker's own, where the
system lets us mount one.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import KafkaStorageError, NotLeaderOrFollower
from barnabas.log.file_system import Data, DiskFileSystem, File, StorageFailure
from tests.broker.raw_client import RawClient
from tests.broker.record_requests import batch, create_topic, fetch, produce, values
from tests.broker.running import RunningBroker
from tests.clients.broker_process import BrokerProcess
from tests.waiting import wait_until

TOPIC = "topic"
PARTITIONS = 6
MIB = 1 << 20
RECORD_BYTES = 200_000
# More than an index needs, which is set aside as a whole.
FILE_MAX_BYTES = 12 * MIB


def directory_of(directories: list[Path], partition: int) -> Path:
    [found] = [each for each in directories if (each / f"{TOPIC}-{partition}").is_dir()]
    return found


def partitions_in(directories: list[Path], directory: Path) -> list[int]:
    return [each for each in range(PARTITIONS) if directory_of(directories, each) == directory]


def record(partition: int, number: int, size: int = RECORD_BYTES) -> bytes:
    return b"%d %d " % (partition, number) + b"." * size


class Written:
    """How many records each partition has acknowledged."""

    def __init__(self, client: RawClient) -> None:
        self.counts = [0] * PARTITIONS
        self.client = client

    def append(self, partition: int, **options: Any) -> int:
        """The error code."""
        records = batch(record(partition, self.counts[partition]))
        answer = produce(self.client, TOPIC, records, partition=partition, **options)
        if answer.error_code == 0:
            assert answer.base_offset == self.counts[partition]
            self.counts[partition] += 1
        code: int = answer.error_code
        return code

    def check_all_there(self, client: RawClient) -> None:
        for partition, count in enumerate(self.counts):
            offset = 0
            while offset < count:
                found = fetch(client, TOPIC, offset, partition=partition)
                assert found.error_code == 0, found
                for value in values(found.records):
                    assert value == record(partition, offset)
                    offset += 1


def fill_until_it_fails(written: Written, partition: int, at_most: int) -> None:
    for _ in range(at_most):
        code = written.append(partition)
        if code != 0:
            assert code == KafkaStorageError.code
            return
    raise AssertionError(f"{at_most} records were taken, and none was refused")


def check_only_one_directory_failed(
    written: Written, directories: list[Path], failed: Path, acks: int = -1
) -> None:
    client = written.client
    for partition in range(PARTITIONS):
        is_offline = partition in partitions_in(directories, failed)
        expected = KafkaStorageError.code if is_offline else 0
        assert written.append(partition, acks=acks) == expected
        assert fetch(client, TOPIC, 0, partition=partition).error_code == expected
    # A new topic goes where there is still a disk.
    create_topic(client, "after")
    assert produce(client, "after", batch(b"value")).error_code == 0


@pytest.mark.slow
def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    broker = BrokerProcess(tmp_path / "a", {"log.dirs": ",".join(map(str, directories))})
    broker.limits[resource.RLIMIT_FSIZE] = FILE_MAX_BYTES
    with broker:
        with broker.client() as client:
            create_topic(client, TOPIC, PARTITIONS)
            written = Written(client)
            for partition in range(PARTITIONS):
                assert written.append(partition) == 0
            full = partitions_in(directories, directories[1])[0]
            fill_until_it_fails(written, full, 2 * FILE_MAX_BYTES // RECORD_BYTES)
            check_only_one_directory_failed(written, directories, directories[1])
        text = broker.log_text()
        assert f"log directory {directories[1]}" in text
        assert "Traceback" not in text
        assert broker.stop() == 0
        broker.limits.clear()
        broker.start()
        with broker.client() as client:
            written.check_all_there(client)
            written.client = client
            assert written.append(full) == 0


@pytest.mark.slow
def test_the_last_directory_that_fails_ends_the_broker(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "a")
    broker.limits[resource.RLIMIT_FSIZE] = FILE_MAX_BYTES
    with broker:
        with broker.client() as client:
            create_topic(client, TOPIC, PARTITIONS)
            written = Written(client)
            fill_until_it_fails(written, 0, 2 * FILE_MAX_BYTES // RECORD_BYTES)
        assert broker.wait() != 0
        text = broker.log_text()
        assert f"all log directories have failed: {tmp_path / 'a'}" in text
        assert "Traceback" not in text
        broker.limits.clear()
        broker.start()
        with broker.client() as client:
            written.check_all_there(client)


class FailingFile:
    def __init__(self, file: File, path: str, disk: FailingDisk) -> None:
        self._file = file
        self._path = path
        self._disk = disk

    def pwrite(self, data: Data, position: int) -> None:
        if self._disk.is_failing(self._path):
            # As a real disk does, it takes a part of the data before it refuses.
            self._file.pwrite(bytes(data)[: len(data) // 2], position)
            raise StorageFailure("write", self._path, self._disk.error_number)
        self._file.pwrite(data, position)

    def pwritev(self, parts: Sequence[Data], position: int) -> None:
        self.pwrite(b"".join(parts), position)

    def sync(self) -> None:
        if self._disk.is_failing(self._path):
            raise StorageFailure("sync", self._path, self._disk.error_number)
        self._file.sync()

    def pread(self, size_bytes: int, position: int) -> bytes:
        return self._file.pread(size_bytes, position)

    def truncate(self, size_bytes: int) -> None:
        self._file.truncate(size_bytes)

    def size_bytes(self) -> int:
        return self._file.size_bytes()

    def fileno(self) -> int:
        return self._file.fileno()


class FailingDisk:
    """The real file system, but for a directory that begins to refuse writing."""

    def __init__(self, directory: Path, error_number: int) -> None:
        self.error_number = error_number
        self.fails = False
        self._directory = f"{directory}/"
        self._real = DiskFileSystem()
        self.open_files = self._real.open_files
        self.index_memory = self._real.index_memory

    def is_failing(self, path: str) -> bool:
        return self.fails and path.startswith(self._directory)

    def open(self, path: str, mode: int) -> FailingFile:
        return FailingFile(self._real.open(path, mode), path, self)

    def write_atomically(
        self, path: str, data: Data, *, syncs: bool = True, is_private: bool = False
    ) -> None:
        if self.is_failing(path):
            raise StorageFailure("write", path, self.error_number)
        self._real.write_atomically(path, data, syncs=syncs, is_private=is_private)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_refuses_to_write(tmp_path: Path, error_number: int) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    disk = FailingDisk(directories[1], error_number)
    broker = RunningBroker(tmp_path / "a", {"log.dirs": ",".join(map(str, directories))}, fs=disk)
    with broker:
        with broker.client() as client:
            create_topic(client, TOPIC, PARTITIONS)
            written = Written(client)
            for _ in range(3):
                for partition in range(PARTITIONS):
                    assert written.append(partition) == 0
            disk.fails = True
            failing = partitions_in(directories, directories[1])[0]
            fill_until_it_fails(written, failing, 1)
            check_only_one_directory_failed(written, directories, directories[1])
        broker.stop()
        disk.fails = False
        broker.start()
        with broker.client() as client:
            written.check_all_there(client)
            written.client = client
            assert written.append(failing) == 0


class SlowDisk(FailingDisk):
    """Makes directories of partitions only when it is told to."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, errno.EIO)
        self.go_on = threading.Event()

    def make_dirs(self, path: str, *, syncs: bool = True) -> bool:
        if path.startswith(self._directory):
            assert self.go_on.wait(60)
        return self._real.make_dirs(path, syncs=syncs)


class FaultyDisk(SlowDisk):
    """A disk whose driver has a bug."""

    def make_dirs(self, path: str, *, syncs: bool = True) -> bool:
        if path.startswith(self._directory):
            raise RuntimeError("a bug")
        return self._real.make_dirs(path, syncs=syncs)


def test_a_bug_takes_one_partition_offline(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "a", fs=FaultyDisk(tmp_path / "a")) as broker, broker.client() as client:
        create_topic(client, TOPIC)
        wait_until(lambda: produce(client, TOPIC, batch(b"value")).error_code == KafkaStorageError.code)


def test_a_disk_that_is_slow_with_new_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to who has created a topic does not wait for ever; until the log is there, clients try again."""
    disk = SlowDisk(tmp_path / "a")
    monkeypatch.setattr("barnabas.broker.handlers.topics.create_topics.OPENING_WAIT_S", 0.05)
    with RunningBroker(tmp_path / "a", fs=disk) as broker, broker.client() as client:
        try:
            create_topic(client, TOPIC)
            assert produce(client, TOPIC, batch(b"early")).error_code == NotLeaderOrFollower.code
        finally:
            disk.go_on.set()
        wait_until(lambda: produce(client, TOPIC, batch(b"value")).error_code != NotLeaderOrFollower.code)
        assert values(fetch(client, TOPIC, 0).records) == [b"value"]


def may_mount() -> str | None:
    """Why a tmpfs cannot be mounted here; None if it can."""
    if sys.platform != "linux":
        return "this is not Linux"
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("mount") is None:
        return "this needs root, unshare and mount"
    done = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return None if done.returncode == 0 else f"mounting is not allowed: {done.stderr.strip()}"


class SmallDiskBroker(BrokerProcess):
    """A broker in a mount namespace of its own: its second directory is a tmpfs that ends with the broker."""

    def __init__(self, directories: list[Path], size: str) -> None:
        super().__init__(directories[0], {"log.dirs": ",".join(map(str, directories))})
        self._mount = f'mount -t tmpfs -o size={size} tmpfs "{directories[1]}" && exec "$@"'

    def command(self) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", self._mount, "sh", *super().command()]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[BrokerProcess, list[Path]]]:
    why_not = may_mount()
    if why_not is not None:
        pytest.skip(f"a small tmpfs is needed for a full disk: {why_not}")
    directories = [tmp_path / "a", tmp_path / "b"]
    for directory in directories:
        directory.mkdir()
    with SmallDiskBroker(directories, "8m") as broker:
        yield broker, directories


def test_a_disk_that_is_full(small_disk: tuple[BrokerProcess, list[Path]]) -> None:
    broker, directories = small_disk
    with broker.client() as client:
        create_topic(client, TOPIC, PARTITIONS)
        written = Written(client)
        # What lies on the tmpfs is seen in the broker's namespace alone.
        on_disk = [each for each in range(PARTITIONS) if (directories[0] / f"{TOPIC}-{each}").is_dir()]
        in_memory = [each for each in range(PARTITIONS) if each not in on_disk]
        assert on_disk
        assert in_memory
        for partition in range(PARTITIONS):
            assert written.append(partition) == 0
        fill_until_it_fails(written, in_memory[0], 100)
        for partition in in_memory:
            assert written.append(partition) == KafkaStorageError.code
        for partition in on_disk:
            assert written.append(partition) == 0
            found = fetch(client, TOPIC, 0, partition=partition)
            assert (found.error_code, values(found.records)[0]) == (0, record(partition, 0))
    assert "Traceback" not in broker.log_text()
    assert broker.stop() == 0
