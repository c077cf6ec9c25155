"""The periodic work of the log manager, and the cleaner's threads."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.log.checkpoints import read_offsets
from barnabas.log.cleaner import CleaningAborted
from barnabas.log.manager_settings import ManagerSettings
from barnabas.log.manager_tasks import CleanerPace, ManagerTasks
from barnabas.model import TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder
from tests.log.managed import ManagedLogs, values

WAIT_S = 60
SETTINGS = ManagerSettings(log_cleaner_enable=False, log_flush_scheduler_interval_ms=1000)


def test_work_is_done_at_its_time() -> None:
    logs = ManagedLogs(config=LogConfig(retention_ms=1000, flush_ms=500), settings=SETTINGS)
    log = logs.create("a-0", "old")
    tasks = ManagerTasks(logs.manager, logs.scheduler, logs.clock)
    tasks.start()
    logs.pass_ms(999)
    assert log.recovery_point == 0
    logs.pass_ms(1)
    assert log.recovery_point == 1
    logs.pass_ms(5_000)
    assert read_offsets(logs.fs, "/disk/replication-offset-checkpoint") == {TopicPartition("a", 0): 1}
    assert values(log) == ["old"]
    logs.pass_ms(30_000)
    assert read_offsets(logs.fs, "/disk/recovery-point-offset-checkpoint") == {TopicPartition("a", 0): 1}
    assert values(log) == []
    # Each runs again and again, until it is told to stop.
    logs.append(log, "new")
    log.roll()
    logs.clock.advance_ms(2000)
    logs.append(log, "newer")
    for _ in range(2):
        logs.pass_ms(SETTINGS.log_retention_check_interval_ms)
    assert values(log) == []
    tasks.stop()
    for _ in range(2):
        logs.pass_ms(SETTINGS.log_retention_check_interval_ms)
    assert not logs.scheduler.pending


def test_cleaner_thread() -> None:
    config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01)
    settings = replace(
        SETTINGS, log_cleaner_enable=True, log_cleaner_dedupe_buffer_size=1 << 20, log_cleaner_backoff_ms=10
    )
    logs = ManagedLogs(config=config, settings=settings)
    log = logs.create("a-0")
    for _ in range(3):
        builder = BatchBuilder()
        builder.append(TimestampMs(logs.clock.now_ms()), b"key", b"value")
        log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    tasks = ManagerTasks(logs.manager, logs.scheduler, logs.clock)
    tasks.start()
    deadline = time.monotonic() + WAIT_S
    while values(log) != ["value"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    tasks.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("log-cleaner")]
    logs.restart()
    assert values(logs.log("a-0")) == ["value"]


def test_pace_keeps_to_a_rate() -> None:
    stopping = threading.Event()
    pace = CleanerPace(1e9, stopping)
    start = time.monotonic()
    for _ in range(10):
        pace(5_000_000)
    # 50 MB at 1 GB/s, of which the last wait may not have begun.
    assert time.monotonic() - start >= 0.04


def test_pace_stops_the_cleaner() -> None:
    stopping = threading.Event()
    pace = CleanerPace(float("inf"), stopping)
    pace(1)
    stopping.set()
    with pytest.raises(CleaningAborted):
        pace_for(pace, WAIT_S)


def pace_for(pace: CleanerPace, duration_s: float) -> None:
    deadline = time.monotonic() + duration_s
    while time.monotonic() < deadline:
        pace(1)
