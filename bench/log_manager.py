"""Reopening a broker's logs after a clean stop: time, and open files."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from barnabas.clock import SystemClock
from barnabas.config.log_config import LogConfig
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.manager.manager import LogManager
from barnabas.log.partition.environment import LogEnvironment
from barnabas.model import TimestampMs, TopicPartition
from barnabas.records.builder import BatchBuilder
from bench.table import Table, duration, verdict

PARTITIONS: Final = 10_000
TARGET_S: Final = 5.0
OPEN_FILES_MAX: Final = 100


def run() -> bool:
    directory = tempfile.mkdtemp(prefix="barnabas-bench-")
    try:
        _fill(directory)
        manager = _manager(directory)
        start = time.perf_counter()
        manager.open()
        spent_s = time.perf_counter() - start
        open_files = _open_files()
        assert len(manager.logs()) == PARTITIONS
        manager.close()
    finally:
        shutil.rmtree(directory)
    met = spent_s <= TARGET_S and open_files <= OPEN_FILES_MAX
    table = Table("reopening after a clean stop", ["partitions", "time", "target", "open files", ""])
    table.add(f"{PARTITIONS:,}", duration(spent_s), duration(TARGET_S), str(open_files), verdict(met))
    table.print()
    return met


def _manager(directory: str) -> LogManager:
    return LogManager(
        [directory],
        environment=LogEnvironment(fs=DiskFileSystem(), clock=SystemClock()),
        config_of=lambda topic: LogConfig(),
    )


def _fill(directory: str) -> None:
    """Copies of one partition that a clean stop has left, two segments in each."""
    manager = _manager(directory)
    manager.open()
    log = manager.get_or_create(TopicPartition("topic", 0), bytes(15) + b"\1", is_new=True)
    for _ in range(2):
        builder = BatchBuilder()
        builder.append(TimestampMs(SystemClock().now_ms()), b"key", b"value")
        log.append_as_leader(bytearray(builder.build()), leader_epoch=0)
        log.roll()
    manager.close()
    first = Path(directory, "topic-0")
    for number in range(1, PARTITIONS):
        copy = Path(directory, f"topic-{number}")
        copy.mkdir()
        for file in first.iterdir():
            os.link(file, copy / file.name)


def _open_files() -> int:
    descriptors = Path("/proc/self/fd")
    return len(list(descriptors.iterdir())) if descriptors.exists() else 0
