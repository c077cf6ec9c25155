"""Searches step back for other processes of the machine, a broker above all, without ever standing still.

A search runs on a thread that the system only schedules when nothing else wants the processor (SCHED_IDLE, which also
means the idle class for the disk). Any other priority, however low, keeps a broker waiting for some milliseconds when
it wakes. Such a thread may wait for seconds on a machine that is busy all the time. When a step has taken much longer
than the processor time that it needed, the following ones run at the ordinary priority, for as long as it has waited.

Priorities belong to threads, and a thread without privileges cannot raise its own again. Hence two threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

# A step that gets less than this share of a processor waits for others.
SHARE_MIN: Final = 0.1
WAITED_S_MIN: Final = 0.1
NICENESS: Final = 5
NICENESS_ASIDE: Final = 19


class Pace:
    """Runs the steps of searches, one after the other."""

    def __init__(self) -> None:
        self._aside = ThreadPoolExecutor(1, "aside", initializer=step_aside)
        self._make_up_s = 0.0

    def begin_search(self) -> None:
        self._make_up_s = 0.0

    def run(self, steps: Iterator[None]) -> None:
        """Runs an iterator to its end. Only one thread at a time works on it."""
        is_running = True
        while is_running:
            start_s, used_s = time.monotonic(), time.process_time()
            is_aside = self._make_up_s <= 0
            is_running = self._aside.submit(_step, steps).result() if is_aside else _step(steps)
            waited_s, used_s = time.monotonic() - start_s, time.process_time() - used_s
            if not is_aside:
                self._make_up_s -= waited_s
            elif waited_s > WAITED_S_MIN and used_s < waited_s * SHARE_MIN:
                self._make_up_s = waited_s

    def close(self) -> None:
        self._aside.shutdown()


def _step(steps: Iterator[None]) -> bool:
    """Whether there may be more steps."""
    return next(steps, _END) is not _END


_END: Final = object()


def step_aside() -> None:
    """Gives the calling thread the lowest priority that the system has."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS_ASIDE)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
