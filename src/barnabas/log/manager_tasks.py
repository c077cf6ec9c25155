"""What a log manager does while a broker runs: retention, flushes, checkpoints, and the cleaner in threads of its own.

Compiled code holds the interpreter until it is done with a batch. So that a broker's loop is not kept waiting, the
cleaner rests a moment after each millisecond of work: a rest, unlike merely offering the interpreter, lets a waiting
thread have it at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas.clock import Clock
from barnabas.config.log_config import LONG_MAX
from barnabas.errors import KafkaError
from barnabas.log.cleaner import Cleaner, CleaningAborted
from barnabas.log.manager import LogManager
from barnabas.log.offset_map import OffsetMap
from barnabas.log.scheduler import Scheduler

logger = logging.getLogger(__name__)

WORK_NS: Final = 1_000_000
REST_S: Final = 50e-6
JOIN_TIMEOUT_S: Final = 300


class ManagerTasks:
    """The periodic work of a manager: started once its logs are open, stopped before they are closed."""

    def __init__(self, manager: LogManager, scheduler: Scheduler, clock: Clock) -> None:
        self._manager = manager
        self._scheduler = scheduler
        self._clock = clock
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        manager, settings = self._manager, self._manager.settings
        tasks: list[tuple[str, Callable[[], object], int]] = [
            ("log-retention", manager.retain, settings.log_retention_check_interval_ms),
            ("log-flusher", manager.flush_overdue, settings.log_flush_scheduler_interval_ms),
            (
                "recovery-point-checkpoint",
                manager.checkpoint_all,
                settings.log_flush_offset_checkpoint_interval_ms,
            ),
            (
                "high-watermark-checkpoint",
                manager.checkpoint_high_watermarks,
                settings.replica_high_watermark_checkpoint_interval_ms,
            ),
            (
                "producer-expiration",
                manager.expire_producers,
                settings.producer_id_expiration_check_interval_ms,
            ),
        ]
        for name, action, interval_ms in tasks:
            if interval_ms < LONG_MAX:
                first_delay_ms = min(settings.log_initial_task_delay_ms, interval_ms)
                self._scheduler.schedule(name, partial(self._run, name, action, interval_ms), first_delay_ms)
        if settings.log_cleaner_enable:
            for number in range(settings.log_cleaner_threads):
                thread = threading.Thread(target=self._clean, name=f"log-cleaner-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Returns once no cleaning is under way."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(JOIN_TIMEOUT_S)
            assert not thread.is_alive(), f"{thread.name} does not end"
        self._threads = []

    def _run(self, name: str, action: Callable[[], object], interval_ms: int) -> None:
        if self._stopping.is_set():
            return
        try:
            action()
        except KafkaError as error:
            logger.error("%s: %s", name, error)
        except Exception:
            # Whatever went wrong, the next time it may go well.
            logger.exception("%s failed", name)
        self._scheduler.schedule(name, partial(self._run, name, action, interval_ms), interval_ms)

    def _clean(self) -> None:
        settings = self._manager.settings
        memory_bytes = settings.log_cleaner_dedupe_buffer_size // settings.log_cleaner_threads
        cleaner = Cleaner(OffsetMap(memory_bytes, settings.log_cleaner_io_buffer_load_factor), self._clock)
        pace = CleanerPace(
            settings.log_cleaner_io_max_bytes_per_second / settings.log_cleaner_threads, self._stopping
        )
        while not self._stopping.is_set():
            if self._manager.cleaner.clean_next(cleaner, pace) is None:
                self._stopping.wait(settings.log_cleaner_backoff_ms / 1000)


class CleanerPace:
    """Told of each batch, it keeps the cleaner to its rate and to its share of the interpreter, and stops it."""

    def __init__(self, max_bytes_per_second: float, stopping: threading.Event) -> None:
        self._max_bytes_per_second = max_bytes_per_second
        self._stopping = stopping
        self._rested_ns = time.monotonic_ns()
        self._due_ns = self._rested_ns

    def __call__(self, size_bytes: int) -> None:
        now_ns = time.monotonic_ns()
        # A pause earns no credit: the rate is a bound, not an average.
        self._due_ns = max(self._due_ns, now_ns) + int(size_bytes * 1e9 / self._max_bytes_per_second)
        wait_ns = self._due_ns - now_ns
        if wait_ns > WORK_NS:
            self._stopping.wait(wait_ns / 1e9)
        elif now_ns - self._rested_ns >= WORK_NS:
            time.sleep(REST_S)
        else:
            return
        self._rested_ns = time.monotonic_ns()
        if self._stopping.is_set():
            raise CleaningAborted("the broker stops")
