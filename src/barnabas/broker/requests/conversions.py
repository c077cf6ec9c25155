"""Work on records that would block the event loop: decompression, conversion, search in large batches.

A worker process does it, one job after the other (`records/worker.py`). Requests wait for it, the loop does not. The
process runs only while there are jobs. The next job is that of the client that has used the worker least, so a client
that sends only such requests waits for the others.

The cost of a request has bounds. A batch that takes too long, or too much memory, is MESSAGE_TOO_LARGE: smaller
batches may succeed. A job that has waited too long, a request that has used its share, and a full queue are
REQUEST_TIMED_OUT: the client may try again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.broker.requests.session import ClientSession
from barnabas.broker.waiting.tasks import Tasks
from barnabas.clock import Clock
from barnabas.errors import MessageTooLarge, RequestTimedOut
from barnabas.net.worker_process import WorkerGone

log = logging.getLogger(__name__)

WORKER_MODULE: Final = "barnabas.records.worker"
# While a batch of 128 MiB is converted, there are two or three copies of it.
WORKER_MEMORY_BYTES: Final = 1 << 30
# The processor time and the total time that a job may take.
JOB_CPU_S: Final = 10
JOB_TIMEOUT_S: Final = 60.0
# The time that all jobs of a request may take together. It is checked before each job.
REQUEST_SHARE_NS: Final = 10_000_000_000
WAITING_MAX_NS: Final = 20_000_000_000
WAITING_MAX_JOBS: Final = 500
WAITING_MAX_BYTES: Final = 64 << 20
# A process without jobs ends after this time.
IDLE_MAX_S: Final = 30.0


class Worker(Protocol):
    """Runs one job at a time, usually in a separate process (`net/worker_process.py`)."""

    async def run(self, job: bytes) -> bytes:
        """The job's result. Raises WorkerGone if there is none."""

    def close(self) -> None: ...


class _Job:
    __slots__ = ("data", "result", "session", "submitted_ns")

    def __init__(
        self, data: bytes, session: ClientSession, result: asyncio.Future[bytes], submitted_ns: int
    ) -> None:
        self.data = data
        self.session = session
        self.result = result
        self.submitted_ns = submitted_ns


class RequestShare:
    """The jobs of one request, one after the other."""

    __slots__ = ("_conversions", "_session", "used_ns")

    def __init__(self, conversions: Conversions, session: ClientSession) -> None:
        self._conversions = conversions
        self._session = session
        self.used_ns = 0

    async def run(self, job: bytes) -> bytes:
        """The result of a job of `records/jobs.py`. Raises MessageTooLarge or RequestTimedOut if there is none."""
        if self.used_ns > REQUEST_SHARE_NS:
            raise RequestTimedOut(
                "Converting the records of this request takes too long. Send fewer at a time."
            )
        result = await self._conversions.submit(self._session, job)
        self.used_ns += self._session.last_job_ns
        return result


class Conversions:
    def __init__(
        self,
        clock: Clock,
        tasks: Tasks,
        new_worker: Callable[[], Worker],
        *,
        idle_max_s: float = IDLE_MAX_S,
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._new_worker = new_worker
        self._idle_max_s = idle_max_s
        self._worker: Worker | None = None
        self._waiting: list[_Job] = []
        self._waiting_bytes = 0
        self._is_serving = False
        self._idle: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def share(self, session: ClientSession) -> RequestShare:
        return RequestShare(self, session)

    def submit(self, session: ClientSession, job: bytes) -> asyncio.Future[bytes]:
        if len(self._waiting) >= WAITING_MAX_JOBS or (
            self._waiting and self._waiting_bytes + len(job) > WAITING_MAX_BYTES
        ):
            raise RequestTimedOut(f"{len(self._waiting)} requests wait for their records to be converted.")
        result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Job(job, session, result, self._clock.monotonic_ns()))
        self._waiting_bytes += len(job)
        if not self._is_serving:
            self._is_serving = True
            self._tasks.start(self._serve())
        return result

    def close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self._worker is not None:
            self._worker.close()

    async def _serve(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        try:
            while (job := self._next_job()) is not None:
                await self._do(job)
        finally:
            self._is_serving = False
            # Jobs are left only when the broker stops.
            for job in list(self._waiting):
                self._take(job)
                job.result.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_max_s, self._end_worker)

    def _next_job(self) -> _Job | None:
        now_ns = self._clock.monotonic_ns()
        for job in [each for each in self._waiting if now_ns - each.submitted_ns > WAITING_MAX_NS]:
            self._take(job)
            if not job.result.done():
                job.result.set_exception(
                    RequestTimedOut("The records have waited too long for their conversion.")
                )
        if not self._waiting:
            return None
        job = min(self._waiting, key=lambda each: (each.session.worker_used_ns(now_ns), each.submitted_ns))
        self._take(job)
        return job

    def _take(self, job: _Job) -> None:
        self._waiting.remove(job)
        self._waiting_bytes -= len(job.data)

    async def _do(self, job: _Job) -> None:
        if job.result.done():
            return
        if self._worker is None:
            self._worker = self._new_worker()
        began_ns = self._clock.monotonic_ns()
        result = b""
        error: Exception | None = None
        try:
            result = await self._worker.run(job.data)
        except WorkerGone as gone:
            log.warning("A conversion of %d bytes of records failed: %s", len(job.data), gone)
            if gone.was_slow:
                error = MessageTooLarge(
                    f"Converting the batch takes more than {JOB_CPU_S} s. Send smaller batches."
                )
            else:
                error = RequestTimedOut(f"The process that converts records has ended: {gone}")
        except Exception as failure:
            log.exception("a conversion of %d bytes of records failed", len(job.data))
            error = RequestTimedOut(f"The records cannot be converted now: {failure}")
        ended_ns = self._clock.monotonic_ns()
        job.session.use_worker(ended_ns - began_ns, ended_ns)
        if job.result.done():
            return
        if error is None:
            job.result.set_result(result)
        else:
            job.result.set_exception(error)

    def _end_worker(self) -> None:
        if self._worker is not None and not self._is_serving:
            self._worker.close()
            self._worker = None
