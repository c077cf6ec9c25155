"""A partition log compared with the limits of the machine: appending, locating a record, recovering.

All results are processor time of the one thread that does the work, including the kernel: the files stay in the page
cache, and other work on the machine counts for neither side.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
from collections.abc import Callable
from typing import Final

from barnabas.clock import SystemClock
from barnabas.config.log_config import LogConfig
from barnabas.log.file_system import DiskFileSystem
from barnabas.log.partition.environment import LogEnvironment, PriorState
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.log.partition.read import Isolation
from barnabas.model import ProducerEpoch, ProducerId, TimestampMs
from barnabas.primitives.crc32c import crc32c
from barnabas.records.builder import BatchBuilder
from bench.table import Table, duration, verdict

BIG_BYTES: Final = 64 << 10
SMALL_BYTES: Final = 1 << 10
BIG_SHARE_MIN: Final = 0.7
SMALL_APPENDS_MIN: Final = 120_000
LOCATE_S_MAX: Final = 5e-6
RECOVERY_BYTES_MIN: Final = 1e9

BIG_APPENDS: Final = 1_500
SMALL_APPENDS: Final = 20_000
SEGMENTS: Final = 1_000
READS: Final = 20_000
RECOVERED_BYTES: Final = 256 << 20
ROUNDS: Final = 7

Timed = Callable[[str], float]
"""Runs in an empty directory and tells how many seconds the part took that counts."""


def run() -> bool:
    table = Table(
        "Partition log, on one core, by processor time", ("", "barnabas", "bare loop", "share", "target", "")
    )
    met = [
        _appends(table),
        _small_appends(table),
        _idempotent_appends(table),
        _locate(table),
        _recover(table),
    ]
    table.print()
    return all(met)


def _appends(table: Table) -> bool:
    batch = _batch(BIG_BYTES)
    ours, bare = _best(_append(batch, BIG_APPENDS), _write(batch, BIG_APPENDS))
    share = bare / ours
    written_bytes = len(batch) * BIG_APPENDS
    met = share >= BIG_SHARE_MIN
    table.add(
        "append 64 KiB batches",
        f"{written_bytes / ours / 1e6:.0f} MB/s",
        f"{written_bytes / bare / 1e6:.0f} MB/s",
        f"{share:.0%}",
        f"≥ {BIG_SHARE_MIN:.0%}",
        verdict(met),
    )
    return met


def _small_appends(table: Table) -> bool:
    batch = _batch(SMALL_BYTES)
    ours, bare = _best(_append(batch, SMALL_APPENDS), _write(batch, SMALL_APPENDS))
    met = SMALL_APPENDS / ours >= SMALL_APPENDS_MIN
    table.add(
        "append 1 KB batches",
        f"{SMALL_APPENDS / ours:,.0f}/s",
        f"{SMALL_APPENDS / bare:,.0f}/s",
        f"{bare / ours:.0%}",
        f"≥ {SMALL_APPENDS_MIN:,}/s",
        verdict(met),
    )
    return met


def _idempotent_appends(table: Table) -> bool:
    batches = [_batch(SMALL_BYTES, sequence) for sequence in range(SMALL_APPENDS)]

    def append(directory: str) -> float:
        log = _open(directory)
        start = time.thread_time()
        for batch in batches:
            log.append_as_leader(batch, leader_epoch=1)
        return time.thread_time() - start

    (ours,) = _best(append)
    table.add("the same, idempotent", f"{SMALL_APPENDS / ours:,.0f}/s", "", "", "", "")
    return True


def _locate(table: Table) -> bool:
    batch = _batch(SMALL_BYTES)
    with tempfile.TemporaryDirectory() as directory:
        log = _open(directory, LogConfig(segment_bytes=48 * len(batch), segment_index_bytes=4096))
        while len(log.segments) < SEGMENTS:
            log.append_as_leader(batch, leader_epoch=1)
        rng = random.Random(1)
        offsets = [rng.randrange(log.log_end_offset) for _ in range(READS)]

        def read(_: str) -> float:
            start = time.thread_time()
            for offset in offsets:
                log.read(offset, BIG_BYTES, Isolation.LOG_END)
            return (time.thread_time() - start) / READS

        (ours,) = _best(read)
    met = ours <= LOCATE_S_MAX
    table.add(
        f"locate a record, {SEGMENTS:,} segments",
        duration(ours),
        "",
        "",
        f"≤ {duration(LOCATE_S_MAX)}",
        verdict(met),
    )
    return met


def _recover(table: Table) -> bool:
    batch = _batch(BIG_BYTES)
    with tempfile.TemporaryDirectory() as directory:
        log = _open(directory)
        while log.size_bytes < RECOVERED_BYTES:
            log.append_as_leader(batch, leader_epoch=1)
        size_bytes = log.size_bytes
        log.close()

        def recover(_: str) -> float:
            start = time.thread_time()
            assert _open(directory).size_bytes == size_bytes
            return time.thread_time() - start

        (ours,) = _best(recover)
    rate = size_bytes / ours
    met = rate >= RECOVERY_BYTES_MIN
    table.add(
        "recover 64 KiB batches",
        f"{rate / 1e6:,.0f} MB/s",
        "",
        "",
        f"≥ {RECOVERY_BYTES_MIN / 1e6:,.0f} MB/s",
        verdict(met),
    )
    return met


def _append(batch: bytes, count: int) -> Timed:
    def append(directory: str) -> float:
        log = _open(directory)
        start = time.thread_time()
        for _ in range(count):
            log.append_as_leader(batch, leader_epoch=1)
        return time.thread_time() - start

    return append


def _write(batch: bytes, count: int) -> Timed:
    def write(directory: str) -> float:
        descriptor = os.open(f"{directory}/bare", os.O_RDWR | os.O_CREAT)
        try:
            start = time.thread_time()
            for _ in range(count):
                crc32c(batch)
                os.write(descriptor, batch)
            return time.thread_time() - start
        finally:
            os.close(descriptor)

    return write


def _open(directory: str, config: LogConfig | None = None) -> PartitionLog:
    return PartitionLog.open(
        f"{directory}/topic-0",
        environment=LogEnvironment(fs=DiskFileSystem(), clock=SystemClock()),
        config=config or LogConfig(),
        prior=PriorState(is_gapless=True),
    )


def _batch(size_bytes: int, sequence: int = -1) -> bytes:
    has_producer = sequence >= 0
    builder = BatchBuilder(
        producer_id=ProducerId(7 if has_producer else -1),
        producer_epoch=ProducerEpoch(0 if has_producer else -1),
        base_sequence=sequence,
    )
    builder.append(TimestampMs(SystemClock().now_ms()), None, bytes(size_bytes - 80))
    return builder.build()


def _best(*contenders: Timed) -> list[float]:
    """The shortest time of each over some rounds, in which they take turns."""
    best = [float("inf")] * len(contenders)
    for _ in range(ROUNDS):
        for index, contender in enumerate(contenders):
            with tempfile.TemporaryDirectory() as directory:
                gc.collect()
                best[index] = min(best[index], contender(directory))
    return best
