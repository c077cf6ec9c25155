"""Logs are made and deleted by the thousand: what the disk has to be waited for, and what a crash leaves of them."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import pytest

from barnabas.clock import SystemClock
from barnabas.config.log_config import LogConfig
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.manager.manager import LogManager
from barnabas.log.manager.settings import ManagerSettings
from barnabas.log.partition.environment import LogEnvironment
from barnabas.model import TopicPartition
from tests.log.managed import ManagedLogs, values
from tests.sampling import cases, sample

TOPIC_ID = bytes(range(16))
PARTITIONS = [TopicPartition("a", index) for index in range(8)]


def make_all(logs: ManagedLogs, *, is_new: bool = True) -> None:
    for partition in PARTITIONS:
        log = logs.manager.get_or_create(partition, TOPIC_ID, is_new=is_new)
        log.assign_epoch_start(0)


class Syncs:
    """Counts what is synced on a simulated disk, or done otherwise."""

    def __init__(self, logs: ManagedLogs, *operations: str) -> None:
        self.paths: list[str] = []
        step = logs.fs.step

        def counting(operation: str, path: str) -> None:
            if operation in (operations or ("sync",)):
                self.paths.append(path)
            step(operation, path)

        logs.fs.step = counting  # type: ignore[method-assign]


def test_a_new_log_waits_for_no_disk() -> None:
    logs = ManagedLogs()
    syncs = Syncs(logs)
    make_all(logs)
    assert syncs.paths == []
    assert sorted(logs.fs.list_dir("/disk/a-0")) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


def test_nothing_is_looked_for_in_a_new_directory() -> None:
    logs = ManagedLogs()
    looks = Syncs(logs, "list", "read")
    opened = Syncs(logs, "open")
    make_all(logs)
    assert [path for path in looks.paths if path.startswith("/disk/a-")] == []
    # The log, its two indexes, and the two small files.
    assert len([path for path in opened.paths if path.startswith("/disk/a-0/")]) == 5


def test_an_empty_log_is_not_waited_for_at_a_stop() -> None:
    logs = ManagedLogs()
    make_all(logs)
    syncs = Syncs(logs)
    logs.manager.close()
    assert [path for path in syncs.paths if path.startswith("/disk/a-")] == []


def test_a_stop_syncs_the_directory_of_new_logs_once() -> None:
    for seed in range(10):
        logs = ManagedLogs()
        make_all(logs)
        for partition in PARTITIONS:
            logs.append(logs.log(str(partition)), "one")
        syncs = Syncs(logs)
        logs.manager.close()
        # Once for the logs, and with each file that is written there.
        assert syncs.paths.count("/disk") <= 5
        logs.fs = logs.fs.crash(Random(seed))
        logs.start()
        assert logs.progress[-1].is_clean
        assert all(values(logs.log(str(partition))) == ["one"] for partition in PARTITIONS)


@pytest.mark.parametrize("stops", sample([True, False], fast=1))
def test_a_power_cut_after_logs_were_made(stops: bool) -> None:
    """They may be gone, or be there in part or with nonsense in them: they are made again, and are empty."""
    for seed in range(cases(40, fast=10)):
        logs = ManagedLogs()
        make_all(logs)
        if stops:
            logs.manager.close()
        logs.fs = logs.fs.crash(Random(seed))
        logs.start()
        # The broker that starts again knows them, so they are not new.
        make_all(logs, is_new=False)
        for partition in PARTITIONS:
            log = logs.log(str(partition))
            assert (log.topic_id, log.log_end_offset, log.latest_epoch) == (TOPIC_ID, 0, 0), seed


def test_a_power_cut_after_logs_were_deleted_and_made_again() -> None:
    for seed in range(cases(40, fast=10)):
        logs = ManagedLogs()
        make_all(logs)
        for partition in PARTITIONS:
            logs.append(logs.log(str(partition)), "old")
        logs.restart()
        assert logs.manager.delete_all(PARTITIONS) == {}
        make_all(logs)
        logs.fs = logs.fs.crash(Random(seed))
        logs.start()
        make_all(logs, is_new=False)
        assert all(logs.log(str(partition)).log_end_offset == 0 for partition in PARTITIONS), seed


def test_with_its_first_flush_a_log_is_there_for_good() -> None:
    for seed in range(cases(40, fast=10)):
        logs = ManagedLogs()
        make_all(logs)
        logs.append(logs.log("a-3"), "one")
        logs.log("a-3").flush()
        logs.manager.checkpoint_all()
        logs.append(logs.log("a-3"), "two")
        logs.fs = logs.fs.crash(Random(seed))
        logs.start()
        log = logs.log("a-3")
        assert values(log)[:1] == ["one"], seed
        assert (log.topic_id, log.latest_epoch) == (TOPIC_ID, 0), seed


def test_many_are_deleted_with_one_look_at_the_disk() -> None:
    logs = ManagedLogs()
    make_all(logs)
    logs.append(logs.log("a-3"), "one")
    syncs = Syncs(logs)
    assert logs.manager.delete_all(PARTITIONS) == {}
    assert syncs.paths.count("/disk") <= 5
    assert len(syncs.paths) <= 9
    logs.fs = logs.fs.crash(Random(0))
    logs.start()
    assert logs.manager.logs() == []
    assert logs.manager.get_or_create(PARTITIONS[3], bytes(range(1, 17)), is_new=True).log_end_offset == 0


def test_checkpoints_of_several_threads_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    manager = LogManager(
        [str(tmp_path)],
        environment=LogEnvironment(fs=DiskFileSystem(), clock=SystemClock()),
        config_of=lambda topic: LogConfig(),
        settings=ManagerSettings(file_delete_delay_ms=0),
    )
    manager.open()
    is_over = threading.Event()

    def checkpoint() -> None:
        while not is_over.is_set():
            manager.checkpoint_all()
            manager.checkpoint_high_watermarks()

    threads = [threading.Thread(target=checkpoint) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            for partition in PARTITIONS[:2]:
                manager.get_or_create(partition, TOPIC_ID, is_new=True)
            assert manager.delete_all(PARTITIONS[:2]) == {}
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not manager.directories[0].is_offline
    manager.close()
