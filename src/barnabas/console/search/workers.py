"""The worker processes of searches. They start once and serve one search after the other.

A worker that is stopped in the middle of a piece is killed, as nothing else ends its work at once. Workers that nobody
uses for a while end, to give their memory back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

WORKERS_MAX: Final = 4
LINE_BYTES_MAX: Final = 8 << 20
IDLE_S_MAX: Final = 120.0
END_S_MAX: Final = 5.0


def worker_count() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, WORKERS_MAX))


class Worker:
    """One process; `is_idle` says whether it has answered all that it was asked."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.is_idle = True

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    def write(self, form: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self.is_idle = False
        self._process.stdin.write(json.dumps(form).encode() + b"\n")

    async def read(self) -> dict[str, Any]:
        """The next line; RuntimeError if the process has ended."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("a worker process ended before its piece was searched")
        form: dict[str, Any] = json.loads(line)
        return form

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        async with asyncio.timeout(END_S_MAX):
            await self._process.wait()


class WorkerPool:
    """Starts workers when they are needed, and keeps as many as there are cores."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._timers: dict[Worker, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = 0

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        worker = self._take() or await _start()
        try:
            yield worker
        finally:
            if worker.is_idle and worker.is_alive and len(self._idle) < worker_count():
                self._keep(worker)
            else:
                await worker.end()

    def warm(self) -> None:
        """Starts a worker for each core in the background: a user who looks at records will search."""
        while len(self._idle) + self._starting < worker_count():
            self._starting += 1
            self._in_background(self._start_one())

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while (worker := self._take()) is not None:
            await worker.end()

    async def _start_one(self) -> None:
        try:
            worker = await _start()
        finally:
            self._starting -= 1
        self._keep(worker)

    def _take(self) -> Worker | None:
        while self._idle:
            worker = self._idle.pop()
            self._timers.pop(worker).cancel()
            if worker.is_alive:
                return worker
        return None

    def _keep(self, worker: Worker) -> None:
        loop = asyncio.get_running_loop()
        self._idle.append(worker)
        self._timers[worker] = loop.call_later(IDLE_S_MAX, self._expire, worker)

    def _expire(self, worker: Worker) -> None:
        self._idle.remove(worker)
        del self._timers[worker]
        self._in_background(worker.end())

    def _in_background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _start() -> Worker:
    return Worker(
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "barnabas.console.search.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
    )
