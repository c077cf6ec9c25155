"""A separate process that takes one job at a time: bytes go to it, bytes come back.

    job     =  size: uint32  |  `size` bytes
    result  =  size: uint32  |  is last: one byte  |  `size` bytes

The first job starts the process. It runs until it is closed, marks a result as its last (it has grown too large), or
does not answer in time. In every case the caller gets a result or WorkerGone. Nothing here blocks.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from functools import partial
from struct import Struct
from typing import Final

JOB_SIZE: Final = Struct(">I")
RESULT_HEAD: Final = Struct(">I?")
RECEIVED_AT_ONCE_BYTES: Final = 256 * 1024
RESULT_MAX_BYTES: Final = 256 << 20
# A process that has closed its socket is about to end.
GRACE_S: Final = 1.0


class WorkerGone(Exception):
    """The process ended, or was ended, before the job was done; `was_slow` if the job took too much processor time."""

    def __init__(self, message: str, *, was_slow: bool = False) -> None:
        super().__init__(message)
        self.was_slow = was_slow


class WorkerProcess:
    """`module` is what the process runs, with these arguments; a job has `timeout_s` from its beginning to its end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        module: str,
        *arguments: str,
        timeout_s: float,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._command = (sys.executable, "-m", module, *arguments)
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._is_closed = False
        self._is_busy = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self, job: bytes) -> bytes:
        """The job's result. One job at a time."""
        assert not self._is_busy
        self._is_busy = True
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._has_ended():
                    self._release()
                    await self._start()
                return await self._exchange(job)
        except TimeoutError:
            self._release()
            raise WorkerGone(f"a job took longer than {self._timeout_s:g} s") from None
        except (OSError, EOFError) as error:
            raise await self._gone(str(error)) from None
        except asyncio.CancelledError:
            # The broker stops, and with it the threads that could wait for the process.
            self.close()
            raise
        finally:
            self._is_busy = False

    def close(self) -> None:
        self._is_closed = True
        self._release()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        spawning = self._executor.submit(_spawn, self._command, theirs)
        try:
            process = await asyncio.wrap_future(spawning)
        except BaseException:
            ours.close()
            spawning.add_done_callback(partial(_abandon, theirs))
            raise
        if self._is_closed:
            ours.close()
            _end(process)
            raise EOFError("the broker stops")
        self._process = process
        self._socket = ours

    async def _exchange(self, job: bytes) -> bytes:
        connected = self._socket
        assert connected is not None
        await self._loop.sock_sendall(connected, JOB_SIZE.pack(len(job)))
        await self._loop.sock_sendall(connected, job)
        size_bytes, is_last = RESULT_HEAD.unpack(await self._receive(connected, RESULT_HEAD.size))
        if size_bytes > RESULT_MAX_BYTES:
            raise EOFError(f"a result of {size_bytes} bytes was announced")
        result = await self._receive(connected, size_bytes)
        if is_last:
            self._release()
        return result

    async def _receive(self, connected: socket.socket, size_bytes: int) -> bytes:
        parts: list[bytes] = []
        missing_bytes = size_bytes
        while missing_bytes:
            part = await self._loop.sock_recv(connected, min(missing_bytes, RECEIVED_AT_ONCE_BYTES))
            if not part:
                raise EOFError("it ended")
            parts.append(part)
            missing_bytes -= len(part)
        return b"".join(parts)

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    async def _gone(self, reason: str) -> WorkerGone:
        process = self._process
        self._process = None
        self._release()
        if process is None:
            return WorkerGone(reason)
        code = await self._loop.run_in_executor(self._executor, _end, process)
        return WorkerGone(reason, was_slow=code == -signal.SIGPROF)

    def _release(self) -> None:
        process, connected = self._process, self._socket
        self._process = self._socket = None
        if connected is not None:
            connected.close()
        if process is not None:
            process.kill()
            if self._is_closed:
                process.wait()
            else:
                # The system may have a gigabyte to take back.
                self._executor.submit(process.wait)


def _spawn(command: Sequence[str], theirs: socket.socket) -> subprocess.Popen[bytes]:
    # The process finds the package where we have found it.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with theirs:
        return subprocess.Popen(command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, env=environment)


def _abandon(theirs: socket.socket, spawning: Future[subprocess.Popen[bytes]]) -> None:
    """Ends a process that no caller waits for any more."""
    theirs.close()
    if not spawning.cancelled() and spawning.exception() is None:
        process = spawning.result()
        process.kill()
        process.wait()


def _end(process: subprocess.Popen[bytes]) -> int:
    """How a process ended whose socket is closed; it ends now if it has not."""
    try:
        return process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
