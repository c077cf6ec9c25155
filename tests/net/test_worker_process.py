"""A worker process and the ways in which it can end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.errors import MessageTooLarge
from barnabas.model import TimestampMs
from barnabas.net.worker_process import WorkerGone, WorkerProcess
from barnabas.records.builder import BatchBuilder
from barnabas.records.jobs import find_timestamp_job, found_timestamp, validate_job, validated_records
from barnabas.records.layout import CompressionType
from barnabas.records.policy import AppendPolicy
from tests.net.on_loop import on_loop
from tests.records.many_records import many_records

MODULE = "barnabas.records.worker"


def batch(count: int, size_bytes: int = 0, compression: CompressionType = CompressionType.ZSTD) -> bytes:
    builder = BatchBuilder(compression=compression)
    for number in range(count):
        builder.append(TimestampMs(number), b"", bytes(size_bytes))
    return bytes(builder.build())


SMALL = find_timestamp_job(batch(10), 7, 0, is_exact=False)
LONG = validate_job(
    many_records(1_000_000, CompressionType.ZSTD), AppendPolicy(compression=CompressionType.GZIP), 0, 0
)


@contextlib.asynccontextmanager
async def working(
    cpu_s: float = 30, memory_bytes: int = 1 << 30, timeout_s: float = 60.0
) -> AsyncIterator[WorkerProcess]:
    with ThreadPoolExecutor(2) as executor:
        worker = WorkerProcess(
            asyncio.get_running_loop(), executor, MODULE, str(cpu_s), str(memory_bytes), timeout_s=timeout_s
        )
        try:
            yield worker
        finally:
            worker.close()


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@on_loop
async def test_jobs_one_after_the_other() -> None:
    async with working() as worker:
        assert worker.pid is None
        for _ in range(3):
            assert found_timestamp(await worker.run(SMALL)) == (7, 7)
        pid = worker.pid
        assert pid is not None
        assert is_running(pid)
        large = validated_records(
            await worker.run(validate_job(batch(1, 900_000), AppendPolicy(is_compacted=True), 0, 0))
        )
        assert large.last_offset == 0
        assert worker.pid == pid
    assert not is_running(pid)


@pytest.mark.slow
@on_loop
async def test_a_job_that_takes_too_much_processor_time() -> None:
    async with working(cpu_s=0.2) as worker:
        with pytest.raises(WorkerGone) as gone:
            await worker.run(LONG)
        assert gone.value.was_slow
        assert found_timestamp(await worker.run(SMALL)) == (7, 7)


@pytest.mark.slow
@on_loop
async def test_a_job_that_takes_too_long() -> None:
    async with working() as worker:
        assert found_timestamp(await worker.run(SMALL)) == (7, 7)
        # The process runs now: the time of a busy machine to start it does not count.
        worker._timeout_s = 1.0
        pid = worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(WorkerGone) as gone:
            await worker.run(SMALL)
        assert not gone.value.was_slow
        assert worker.pid != pid
    assert not is_running(pid)


@pytest.mark.slow
@on_loop
async def test_a_process_that_is_killed() -> None:
    async with working() as worker:
        assert found_timestamp(await worker.run(SMALL)) == (7, 7)
        assert worker.pid is not None
        running = asyncio.ensure_future(worker.run(LONG))
        await asyncio.sleep(0)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerGone) as gone:
            await running
        assert not gone.value.was_slow
        assert found_timestamp(await worker.run(SMALL)) == (7, 7)


@pytest.mark.slow
@on_loop
async def test_memory_has_a_bound() -> None:
    bomb = validate_job(
        many_records(1_000_000, CompressionType.ZSTD), AppendPolicy(compression=CompressionType.GZIP), 0, 0
    )
    async with working(memory_bytes=60 << 20) as worker:
        with pytest.raises(MessageTooLarge):
            validated_records(await worker.run(bomb))
        assert found_timestamp(await worker.run(SMALL)) == (7, 7)


@on_loop
async def test_a_process_that_cannot_be_started() -> None:
    with ThreadPoolExecutor(1) as executor:
        worker = WorkerProcess(
            asyncio.get_running_loop(), executor, "barnabas.records.no_such_module", timeout_s=60.0
        )
        with pytest.raises(WorkerGone):
            await worker.run(SMALL)
        worker.close()
