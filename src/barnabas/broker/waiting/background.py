"""Work that waits for disks, off the event loop: scheduled by the log, or repeated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class Background:
    """A few threads, and timers that feed them. Any thread may schedule; nothing starts after `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self.executor = executor
        self._loop = loop
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_stopped = False

    def run(self, action: Callable[[], T]) -> asyncio.Future[T]:
        """Runs the action in a thread; for callers on the event loop, which get its result there."""
        return self._loop.run_in_executor(self.executor, action)

    def schedule(self, name: str, action: Callable[[], object], delay_ms: int = 0) -> None:
        """Runs the action once in a thread, after the delay."""
        if self._is_stopped:
            return
        if delay_ms <= 0:
            self.executor.submit(self._run, name, action)
        else:
            self._loop.call_soon_threadsafe(self._start_timer, name, action, delay_ms / 1_000)

    def repeat(self, name: str, action: Callable[[], object], *, first_ms: int, every_ms: int) -> None:
        """Runs the action again and again, each time `every_ms` after the last run has ended."""

        def once() -> None:
            try:
                action()
            finally:
                self.schedule(name, once, every_ms)

        self.schedule(name, once, max(first_ms, 1))

    def stop(self) -> None:
        """Waits for the work that runs, and drops the work that waits."""
        self._is_stopped = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.executor.shutdown(wait=True, cancel_futures=True)

    def _start_timer(self, name: str, action: Callable[[], object], delay_s: float) -> None:
        if self._is_stopped:
            return

        def due() -> None:
            self._timers.discard(timer)
            self.schedule(name, action)

        timer = self._loop.call_later(delay_s, due)
        self._timers.add(timer)

    def _run(self, name: str, action: Callable[[], object]) -> None:
        if self._is_stopped:
            return
        try:
            action()
        except Exception:
            log.exception("%s failed", name)
