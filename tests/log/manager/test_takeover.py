"""A copy takes the place of its original, and the machine may crash, or a disk fail, at any step of it."""

from __future__ import annotations

import errno
from random import Random

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.model import TopicPartition
from tests.log.managed import ManagedLogs, values
from tests.log.simulated import SimulatedCrash
from tests.sampling import seeds

A0 = TopicPartition("a", 0)
CHANGES_MAX = 100


def copied() -> ManagedLogs:
    logs = ManagedLogs(["/disk1", "/disk2"])
    logs.create("a-0", "one", "two", directory="/disk1").flush()
    logs.manager.create_future(A0, "/disk2")
    while not logs.manager.copy_to_future(A0):
        pass
    return logs


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(5, fast=1))
def test_a_crash_leaves_one_log_with_everything(seed: int) -> None:
    places = set()
    for changes in range(CHANGES_MAX):
        logs = copied()
        logs.fs.crash_after(changes)
        try:
            logs.manager.replace_with_future(A0)
        except SimulatedCrash:
            logs.fs = logs.fs.crash(Random(changes * 100 + seed))
            logs.start()
            log = logs.log("a-0")
            places.add(log.directory)
            assert values(log) == ["one", "two"]
            # As long as the original is in use, the move goes on.
            is_moved = log.directory == "/disk2/a-0"
            assert (logs.manager.log(A0, is_future=True) is None) == is_moved
            logs.pass_ms(logs.settings.file_delete_delay_ms)
            logs.restart()
            assert values(logs.log("a-0")) == ["one", "two"]
        else:
            break
    assert places == {"/disk1/a-0", "/disk2/a-0"}
    assert changes < CHANGES_MAX - 1


def test_a_copy_that_was_whole_before_a_crash_follows_deletions_after_it() -> None:
    logs = copied()
    for log in logs.manager.logs():
        log.flush()
    logs.kill()
    current, future = logs.log("a-0"), logs.manager.log(A0, is_future=True)
    assert future is not None
    current.update_high_watermark(current.log_end_offset)
    current.delete_records(1)
    assert logs.manager.copy_to_future(A0)
    assert future.high_watermark == current.high_watermark == 2
    future.advance_log_start_offset(current.log_start_offset)
    assert logs.manager.replace_with_future(A0) is future
    assert values(future) == ["two"]


def test_a_copy_of_which_the_original_may_come_back_is_not_used() -> None:
    logs = copied()
    logs.fs.inject("/disk1", errno.EIO)
    logs.manager.close()
    logs.start()
    assert logs.manager.log(A0) is None
    assert logs.manager.log(A0, is_future=True) is not None


def test_the_original_goes_on_if_the_copys_disk_fails() -> None:
    logs = copied()
    logs.fs.inject("/disk2", errno.EIO, operations=["rename"])
    with pytest.raises(KafkaStorageError):
        logs.manager.replace_with_future(A0)
    log = logs.log("a-0")
    assert log.directory == "/disk1/a-0"
    logs.append(log, "three")
    assert [path for path, _ in logs.offline] == ["/disk2"]
    logs.fs.faults.clear()
    logs.kill()
    assert values(logs.log("a-0")) == ["one", "two", "three"]
