"""The lock of a partition log, which also bars the log once its disk has failed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType

from barnabas.errors import KafkaStorageError
from barnabas.log.file_system import StorageFailure
from barnabas.log.scheduler import Scheduler

logger = logging.getLogger(__name__)

OnStorageFailure = Callable[[StorageFailure], None]


class Guard:
    """`with guard:` is held by one thread at a time, and by none after a storage failure has passed through it."""

    __slots__ = ("_lock", "_on_failure", "_scheduler", "_where", "reason")

    def __init__(self, where: str, scheduler: Scheduler, on_failure: OnStorageFailure | None) -> None:
        self._lock = threading.RLock()
        self._where = where
        self._scheduler = scheduler
        self._on_failure = on_failure
        self.reason = ""
        """Why the log is barred; empty as long as it is not."""

    def __enter__(self) -> None:
        self._lock.acquire()
        if self.reason:
            self._lock.release()
            self.check()

    def check(self) -> None:
        """Raises KafkaStorageError if the log is barred."""
        if self.reason:
            raise KafkaStorageError(f"the log of {self._where} is not in use: {self.reason}")

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and isinstance(error, StorageFailure):
            self.fail(error)
        self._lock.release()

    def fail(self, failure: StorageFailure) -> None:
        """Disables the log: part of the data may be on the disk."""
        if self.reason:
            return
        self.reason = str(failure)
        logger.error("the log of %s is taken out of use: %s", self._where, failure)
        if self._on_failure is not None:
            self._on_failure(failure)

    def bar(self, reason: str) -> None:
        self.reason = self.reason or reason

    def schedule(self, name: str, action: Callable[[], None], delay_ms: int = 0) -> None:
        """Runs the action later, unless the log is disabled by then; a storage failure in it disables the log too."""
        self._scheduler.schedule(name, partial(self._run, action), delay_ms)

    def _run(self, action: Callable[[], None]) -> None:
        if self.reason:
            return
        try:
            action()
        except StorageFailure as failure:
            self.fail(failure)
