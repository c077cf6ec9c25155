"""The memory that records may take until they are acknowledged: `buffer.memory` bytes, in the order of asking.

Memory is counted, not kept: a batch is made and freed as any object. Who does not get what he asks for waits, and what
is freed goes to whoever waits longest, so that a large record is not overtaken for ever by small ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mypy_extensions import i64


class Waiter:
    """Somebody who waits for memory; `wake` is called when it is his."""

    __slots__ = ("is_granted", "size_bytes", "wake")

    def __init__(self, size_bytes: i64, wake: Callable[[], object]) -> None:
        self.size_bytes = size_bytes
        self.wake = wake
        self.is_granted = False


class BufferPool:
    """The lock of the accumulator guards it."""

    __slots__ = ("_waiters", "available_bytes", "total_bytes")

    total_bytes: i64
    available_bytes: i64

    def __init__(self, total_bytes: i64) -> None:
        self.total_bytes = total_bytes
        self.available_bytes = total_bytes
        self._waiters: deque[Waiter] = deque()

    @property
    def is_exhausted(self) -> bool:
        """Whether somebody waits: everything that can be sent is then sent, to make room."""
        return len(self._waiters) > 0

    def has_room(self, size_bytes: i64) -> bool:
        return size_bytes <= self.available_bytes and not self._waiters

    def wait(self, waiter: Waiter) -> None:
        self._waiters.append(waiter)
        self._grant()

    def give_up(self, waiter: Waiter) -> None:
        """The waiter does not want any more; what he was granted goes to others."""
        if waiter.is_granted:
            self.available_bytes += waiter.size_bytes
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
        self._grant()

    def wake_all(self) -> None:
        """Nobody has to wait any more, granted or not: the client is closed."""
        for waiter in self._waiters:
            waiter.wake()

    def free(self, size_bytes: i64) -> None:
        self.available_bytes += size_bytes
        if self._waiters:
            self._grant()

    def _grant(self) -> None:
        while self._waiters and self._waiters[0].size_bytes <= self.available_bytes:
            waiter = self._waiters.popleft()
            self.available_bytes -= waiter.size_bytes
            waiter.is_granted = True
            waiter.wake()
