"""A daemon thread with its own event loop, on which a blocking client works."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from barnabas.client.failures import ClientClosed
from barnabas.errors import RequestTimedOut

T = TypeVar("T")

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
FORKED: Final = "the client was created before this process was forked: create one in each process"


class LoopThread:
    def __init__(self, name: str, on_fork: Callable[[], object] | None = None) -> None:
        """`on_fork` is called in a process that was forked from this one: there the thread is not."""
        self.loop: Final = asyncio.new_event_loop()
        self.on_fork = on_fork
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started = threading.Event()
        # Work that is handed over before the end of the loop is cancelled with it; none is handed over later.
        self._lock = threading.Lock()
        self._is_closing = False
        self._thread.start()
        self._started.wait(START_TIMEOUT_S)
        _all.add(self)

    @property
    def is_closed(self) -> bool:
        return self._is_closing or not self._thread.is_alive()

    def is_current(self) -> bool:
        """Whether the caller runs on this thread: it must not wait for it then."""
        return threading.current_thread() is self._thread

    def call(self, work: Coroutine[Any, Any, T], timeout_ms: float | None = None) -> T:
        """Runs a coroutine on the loop and waits for its result or exception.

        After the time-out it is cancelled and RequestTimedOut is raised. A KeyboardInterrupt cancels it too. Raises
        ClientClosed if the thread has ended or ends in the meantime.
        """
        assert not self.is_current(), "this thread cannot wait for itself"
        if self._pid != os.getpid():
            work.close()
            raise ClientClosed(FORKED)
        with self._lock:
            if self._is_closing:
                work.close()
                raise ClientClosed("the client is closed: make another one")
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(None if timeout_ms is None else timeout_ms / 1000)
        except concurrent.futures.CancelledError:
            raise ClientClosed("the client was closed while this call was under way") from None
        except concurrent.futures.TimeoutError:
            if future.done():
                raise
            future.cancel()
            raise RequestTimedOut(f"not done within {timeout_ms:g} ms") from None
        except BaseException:
            future.cancel()
            raise

    def post(self, function: Callable[..., object], *arguments: object) -> None:
        """Makes the loop call a function soon; from any thread."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def close(self, timeout_ms: float | None = None) -> None:
        """Cancels what still runs on the loop and ends the thread, which is waited for."""
        with self._lock:
            if not self._is_closing:
                self._is_closing = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current():
            self._thread.join(STOP_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000)

    def forget_locks(self) -> None:
        """In a forked process: another thread may have held the lock at the fork, and is not here."""
        self._lock = threading.Lock()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._started.set)
        try:
            self.loop.run_forever()
        finally:
            try:
                tasks = asyncio.all_tasks(self.loop)
                for task in tasks:
                    task.cancel()
                if tasks:
                    self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
                self.loop.run_until_complete(self.loop.shutdown_default_executor())
            finally:
                asyncio.set_event_loop(None)
                self.loop.close()


_all: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


def _tell_of_fork() -> None:
    for thread in list(_all):
        thread.forget_locks()
        if thread.on_fork is not None:
            thread.on_fork()


os.register_at_fork(after_in_child=_tell_of_fork)
