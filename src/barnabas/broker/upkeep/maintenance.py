"""Work on the logs that repeats: retention, flushing, checkpoints, expiry of producers, compaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.broker.waiting.background import Background
from barnabas.clock import Clock
from barnabas.log.cleaner.exclusion import CleaningAborted
from barnabas.log.manager.manager import LogManager
from barnabas.primitives.unhurried import unhurried

if TYPE_CHECKING:
    from barnabas.log.cleaner.cleaner import Cleaner

# Compaction counts what it reads over this time before it waits, where it is bounded at all.
PACE_INTERVAL_S: Final = 0.3


class Pace:
    """Holds the cleaner to a number of bytes a second, and lets the event loop run between any two batches."""

    def __init__(
        self, bytes_per_second: Callable[[], float], stopping: threading.Event, clock: Clock
    ) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._stopping = stopping
        self._since_s = self._now_s()
        self._bytes = 0

    def on_bytes(self, size_bytes: int) -> None:
        if self._stopping.is_set():
            raise CleaningAborted
        # Compiled code holds the interpreter's lock: waiting threads get it here.
        time.sleep(0)
        self._bytes += size_bytes
        if self._now_s() - self._since_s < PACE_INTERVAL_S:
            return
        while (behind_s := self._behind_s()) > 0:
            if self._stopping.wait(min(behind_s, PACE_INTERVAL_S)):
                raise CleaningAborted
        self._since_s = self._now_s()
        self._bytes = 0

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _behind_s(self) -> float:
        """The bound may change while there is something to wait for; a bound of nothing is nearly that."""
        return self._bytes / max(self._bytes_per_second(), 1.0) - (self._now_s() - self._since_s)


class Compaction:
    """Compacts all logs that need it, then waits for `log.cleaner.backoff.ms`. It needs a thread for itself."""

    def __init__(self, manager: LogManager, clock: Clock, background: Background) -> None:
        self._manager = manager
        self._clock = clock
        self._background = background
        self._stopping = threading.Event()
        self._pace = Pace(lambda: manager.settings.log_cleaner_io_max_bytes_per_second, self._stopping, clock)
        self._cleaner: Cleaner | None = None
        self._size: tuple[int, float] | None = None

    def start(self) -> None:
        self._background.schedule("cleaner", self._run, self._manager.settings.log_cleaner_backoff_ms)

    def stop(self) -> None:
        self._stopping.set()
        self._background.stop()

    def _run(self) -> None:
        try:
            self._clean()
        finally:
            self.start()

    def _clean(self) -> None:
        manager = self._manager
        # These settings may change at run time.
        settings = manager.settings
        wanted = (settings.log_cleaner_dedupe_buffer_size, settings.log_cleaner_io_buffer_load_factor)
        if self._cleaner is None or self._size != wanted:
            if not any(log.config.compact for log in unhurried(manager.logs())):
                return
            from barnabas.log.cleaner.cleaner import Cleaner
            from barnabas.log.cleaner.offset_map import OffsetMap

            self._size = wanted
            self._cleaner = Cleaner(OffsetMap(*wanted), self._clock)
        while not self._stopping.is_set():
            if manager.cleaner.clean_next(self._cleaner, self._pace.on_bytes) is None:
                return


def start_maintenance(manager: LogManager, background: Background) -> None:
    settings = manager.settings
    tasks: tuple[tuple[str, Callable[[], object], int], ...] = (
        ("log-retention", manager.retain, settings.log_retention_check_interval_ms),
        ("log-flusher", manager.flush_overdue, settings.log_flush_scheduler_interval_ms),
        ("checkpoints", manager.checkpoint_all, settings.log_flush_offset_checkpoint_interval_ms),
        ("producer-expiry", manager.expire_producers, settings.producer_id_expiration_check_interval_ms),
    )
    for name, action, every_ms in tasks:
        background.repeat(name, action, first_ms=settings.log_initial_task_delay_ms, every_ms=every_ms)
    background.repeat(
        "high-watermarks",
        manager.checkpoint_high_watermarks,
        first_ms=settings.replica_high_watermark_checkpoint_interval_ms,
        every_ms=settings.replica_high_watermark_checkpoint_interval_ms,
    )
