"""Machines of SASL that wait for files or other servers: threads run them, and the event loop goes on.

The number of threads, the messages that wait for them and the time of a message are bounded. What runs longer than its
time keeps its thread until it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.primitives.executors import new_threads
from barnabas.security.sasl import Login, NewServer, SaslFailed

THREADS: Final = 2
WAITING_MAX: Final = 1_000
TIMEOUT_S: Final = 30.0
_BUSY: Final = "Authentication failed: the broker is busy with other authentications. Try again later"


class SlowServer:
    """One authentication, as `SaslServer`."""

    def __init__(self, threads: SaslThreads, new_server: NewServer) -> None:
        self._threads = threads
        self._server = new_server()

    @property
    def login(self) -> Login | None:
        return self._server.login

    async def step(self, message: bytes) -> bytes:
        return await self._threads.run(self._server.step, message)


NewSlowServer = Callable[[], SlowServer]


class SaslThreads:
    """The threads of a listener, which begin with the first message."""

    def __init__(self) -> None:
        self._executor = new_threads(THREADS, "sasl")
        self._waiting = 0

    async def run(self, step: Callable[[bytes], bytes], message: bytes) -> bytes:
        """Raises SaslFailed."""
        if self._waiting >= WAITING_MAX:
            raise SaslFailed(_BUSY, f"{self._waiting} messages wait")
        self._waiting += 1
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asyncio.get_running_loop().run_in_executor(self._executor, step, message)
        except TimeoutError:
            raise SaslFailed(_BUSY, f"a message took longer than {TIMEOUT_S:g} s") from None
        finally:
            self._waiting -= 1
