"""Which log is cleaned, when, and who keeps the cleaner off."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from barnabas.log.cleaner.cleaner import Cleaner
from barnabas.log.cleaner.dirty import log_to_clean
from barnabas.log.cleaner.manager import CleanerManager
from barnabas.log.cleaner.offset_map import OffsetMap
from barnabas.log.directory import LogDirectory
from barnabas.log.file_system import WRITE
from barnabas.log.names import CLEANER_OFFSET_CHECKPOINT
from barnabas.model import TopicPartition
from tests.log.compacted import CONFIG, DIRECTORY, CompactedLog, keys

PARTITION = TopicPartition("compacted", 0)


class Managed(CompactedLog):
    """A compacted log in the hands of a manager."""

    def __init__(self, config: object = CONFIG) -> None:
        super().__init__(config)  # type: ignore[arg-type]
        self.failed: list[LogDirectory] = []
        self.directory = LogDirectory(self.fs, "/data", self.failed.append)
        self.cleaner = Cleaner(OffsetMap(1 << 16), self.clock)
        self.manager = CleanerManager(self.clock, lambda: {PARTITION: (self.directory, self.log)})

    def checkpoint(self) -> int | None:
        return self.directory.read_checkpoint(CLEANER_OFFSET_CHECKPOINT).get(PARTITION)

    def fill(self) -> None:
        self.append(*keys("a", "b", "c"))
        self.append(*keys("a", "b", "c"))
        self.roll()


def test_cleans_what_is_due_and_notes_how_far() -> None:
    log = Managed()
    assert log.manager.clean_next(log.cleaner) is None
    log.fill()
    cleaned = log.manager.clean_next(log.cleaner)
    assert cleaned is not None
    assert cleaned.end_offset == log.checkpoint() == 6
    assert log.offsets() == [3, 4, 5]
    assert log.manager.clean_next(log.cleaner) is None


def test_only_compacted_topics_are_cleaned() -> None:
    log = Managed(replace(CONFIG, cleanup_policy=("delete",)))
    log.fill()
    assert log.manager.clean_next(log.cleaner) is None
    log.log.update_config(CONFIG)
    assert log.manager.clean_next(log.cleaner) is not None


def test_a_topic_whose_deletion_is_on_hold_is_not_cleaned() -> None:
    log = Managed(replace(CONFIG, barnabas_deletion_hold=True))
    log.fill()
    assert log.manager.clean_next(log.cleaner) is None
    log.log.update_config(CONFIG)
    assert log.manager.clean_next(log.cleaner) is not None


def test_dirty_ratio() -> None:
    log = Managed(replace(CONFIG, min_cleanable_dirty_ratio=0.5))
    for number in range(10):
        log.append(*keys(*(f"{number}-{index}" for index in range(5))))
    log.roll()
    assert log.manager.clean_next(log.cleaner) is not None
    log.append(*keys("new"))
    log.roll()
    target = log_to_clean(log.log, log.checkpoint(), log.clock.now_ms())
    assert 0 < target.dirty_ratio < 0.2
    assert not target.is_due
    assert log.manager.clean_next(log.cleaner) is None
    log.log.update_config(replace(CONFIG, min_cleanable_dirty_ratio=target.dirty_ratio - 0.001))
    assert log.manager.clean_next(log.cleaner) is not None


def test_lag_before_which_nothing_is_compacted() -> None:
    log = Managed(replace(CONFIG, min_compaction_lag_ms=10_000))
    log.fill()
    log.clock.advance_ms(6_000)
    log.fill()
    target = log_to_clean(log.log, None, log.clock.now_ms())
    assert (target.end_offset, target.dirty_bytes) == (0, 0)
    log.clock.advance_ms(6_000)
    assert log_to_clean(log.log, None, log.clock.now_ms()).end_offset == 6
    log.clock.advance_ms(6_000)
    assert log_to_clean(log.log, None, log.clock.now_ms()).end_offset == 12


def test_lag_after_which_everything_is_compacted() -> None:
    log = Managed(replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=10_000))
    log.fill()
    assert log.manager.clean_next(log.cleaner) is None
    log.clock.advance_ms(10_001)
    assert log_to_clean(log.log, None, log.clock.now_ms()).is_overdue
    assert log.manager.clean_next(log.cleaner) is not None


def test_checkpoint_outside_the_log_starts_anew() -> None:
    log = Managed()
    log.fill()
    log.manager.offsets.update(log.directory, PARTITION, 1000)
    assert log_to_clean(log.log, log.checkpoint(), 0).first_dirty_offset == 0
    log.log.delete_records(4)
    assert log_to_clean(log.log, 2, 0).first_dirty_offset == 4


def test_dirtiest_log_comes_first() -> None:
    half, all_dirty = Managed(), Managed()
    half.fill()
    half.manager.clean_next(half.cleaner)
    half.fill()
    half.fill()
    all_dirty.fill()
    logs = {
        PARTITION: (half.directory, half.log),
        TopicPartition("dirty", 0): (all_dirty.directory, all_dirty.log),
    }
    manager = CleanerManager(half.clock, lambda: logs)
    chosen = manager._choose()
    assert chosen is not None
    assert chosen[1].log is all_dirty.log


def test_truncation_takes_the_checkpoint_back() -> None:
    log = Managed()
    log.fill()
    log.manager.clean_next(log.cleaner)
    log.manager.offsets.truncate(log.directory, PARTITION, 100)
    assert log.checkpoint() == 6
    log.manager.offsets.truncate(log.directory, PARTITION, 4)
    assert log.checkpoint() == 4
    log.manager.forget(log.directory, [PARTITION])
    assert log.checkpoint() is None


def test_paused_log_is_not_cleaned() -> None:
    log = Managed()
    log.fill()
    with log.manager.exclusion.paused(PARTITION), log.manager.exclusion.paused(PARTITION):
        assert log.manager.clean_next(log.cleaner) is None
        assert log.manager.exclusion.try_pause(PARTITION)
        log.manager.exclusion.resume(PARTITION)
    assert log.manager.clean_next(log.cleaner) is not None


def test_pause_stops_a_cleaning() -> None:
    log = Managed()
    log.fill()
    started, paused = threading.Event(), threading.Event()

    def clean_until_stopped(_: int) -> None:
        started.set()
        while True:
            assert not log.manager.exclusion.try_pause(PARTITION)
            log.manager.exclusion.check(PARTITION)
            time.sleep(0.001)

    def pause() -> None:
        assert started.wait(60)
        with log.manager.exclusion.paused(PARTITION):
            paused.set()

    other = threading.Thread(target=pause)
    other.start()
    assert log.manager.clean_next(log.cleaner, clean_until_stopped) is None
    other.join(60)
    assert paused.is_set()
    assert log.offsets() == list(range(6))
    assert log.checkpoint() is None
    assert log.manager.clean_next(log.cleaner) is not None


def test_damaged_log_is_passed_over() -> None:
    log = Managed()
    log.fill()
    file = log.fs.open(f"{DIRECTORY}/00000000000000000000.log", WRITE)
    file.pwrite(b"\xff", 70)
    assert log.manager.clean_next(log.cleaner) is None
    assert log.manager._choose() is None
    assert not log.failed


def test_log_that_was_damaged_before_the_start_is_passed_over() -> None:
    log = Managed()
    log.fill()
    log.log.close()
    log.log = log._open(clean_shutdown=True)
    file = log.fs.open(f"{DIRECTORY}/00000000000000000000.log", WRITE)
    file.pwrite(bytes(17), 0)
    assert log.manager.clean_next(log.cleaner) is None
    assert log.manager.clean_next(log.cleaner) is None
    assert not log.failed
    # A topic that is made again under the name is another one.
    log.manager.forget(log.directory, [PARTITION])
    log.log = CompactedLog().log
    log.append(*keys("a", "a"))
    log.roll()
    assert log.manager.clean_next(log.cleaner) is not None


def test_batch_with_more_keys_than_the_map_has_room_for(caplog: pytest.LogCaptureFixture) -> None:
    log = Managed(replace(CONFIG, segment_bytes=1 << 20))
    log.append(*keys("a"))
    log.roll()
    assert log.manager.clean_next(log.cleaner) is not None
    small = Cleaner(OffsetMap(0), log.clock)
    log.append(*keys(*map(str, range(1_000))))
    log.roll()
    assert log.manager.clean_next(small) is None
    assert "log.cleaner.dedupe.buffer.size is too small" in caplog.text
    assert log.checkpoint() == 1
    assert log.manager.clean_next(small) is None
    assert not log.failed


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
def test_failing_disk_takes_the_directory_offline(operation: str) -> None:
    log = Managed()
    log.fill()
    log.log.flush()
    log.fs.inject("/data", 5, operations=[operation])
    assert log.manager.clean_next(log.cleaner) is None
    log.fs.faults.clear()
    assert log.failed == [log.directory]
    assert log.directory.is_offline
    log.kill()
    log.check()
