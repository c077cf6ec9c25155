"""One thread changes the log while others flush and read it, on a real disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from barnabas.clock import SystemClock
from barnabas.config.log_config import LogConfig
from barnabas.errors import KafkaStorageError, OffsetOutOfRange
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.partition.environment import LogEnvironment, PriorState
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.records.reader import iterate_batches
from tests.log.partitions import LaterScheduler, all_offsets, batch

APPENDS = 400
JOIN_S_MAX = 120


class Threads:
    """Repeats actions until it is told to stop, and keeps what they raise."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def repeat(self, action: Callable[[], None]) -> None:
        thread = threading.Thread(target=self._run, args=(action,))
        self._threads.append(thread)
        thread.start()

    def _run(self, action: Callable[[], None]) -> None:
        try:
            while not self._stop.is_set():
                action()
        except BaseException as error:
            self.errors.append(error)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(JOIN_S_MAX)
            assert not thread.is_alive()
        assert not self.errors, self.errors


def read_some(log: PartitionLog) -> None:
    """Reads from the start; what is read rises from offset to offset."""
    offset = int(log.log_start_offset)
    for _ in range(10):
        try:
            records = log.read(offset, 2000, Isolation.LOG_END, min_one_message=True).records
            data = b"" if records is None else records.read()
        except (OffsetOutOfRange, KafkaStorageError):
            # The log was truncated or its start deleted between two steps.
            return
        if not data:
            return
        for _, decoded in iterate_batches(data):
            for record in decoded:
                assert record.offset >= offset
                assert record.value == str(int(record.offset)).encode()
                offset = int(record.offset) + 1


@pytest.mark.slow
def test_flushing_and_reading_while_the_log_changes(tmp_path: Path) -> None:
    scheduler = LaterScheduler()
    log = PartitionLog.open(
        f"{tmp_path}/topic-0",
        environment=LogEnvironment(fs=DiskFileSystem(), clock=SystemClock(), scheduler=scheduler),
        config=LogConfig(
            segment_bytes=3000, index_interval_bytes=100, retention_bytes=12_000, retention_ms=-1
        ),
        prior=PriorState(is_gapless=True),
    )
    threads = Threads()
    threads.repeat(log.flush)
    threads.repeat(partial(read_some, log))
    try:
        for number in range(APPENDS):
            end_offset = int(log.log_end_offset)
            log.append_as_leader(batch(str(end_offset).encode()), leader_epoch=0)
            log.advance_high_watermark(log.log_end_offset)
            if number % 90 == 89:
                log.truncate_to(end_offset - 30)
            if number % 50 == 49:
                log.delete_old_segments()
                scheduler.run()
    finally:
        threads.stop()
    assert log.log_start_offset > 0
    assert log.recovery_point <= log.log_end_offset
    offsets = list(range(int(log.log_start_offset), int(log.log_end_offset)))
    assert all_offsets(log) == offsets
    log.flush()
    log.close()
    reopened = PartitionLog.open(
        f"{tmp_path}/topic-0",
        environment=LogEnvironment(fs=DiskFileSystem(), clock=SystemClock()),
        config=LogConfig(),
        prior=PriorState(log_start_offset=offsets[0], recovery_point=offsets[-1] + 1),
    )
    assert all_offsets(reopened) == offsets
    reopened.close()
