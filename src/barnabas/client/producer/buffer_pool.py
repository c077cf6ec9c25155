"""The memory of records until they are acknowledged: `buffer.memory` bytes, granted in the order of requests.

The pool counts memory and does not keep it: a batch is allocated and freed like any object. A request without room
waits, and freed memory goes to the oldest waiter, so that small records do not overtake a large one for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mypy_extensions import i64


class Waiter:
    """A waiter for memory; `wake` is called when the memory is granted."""

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
        """Whether a thread waits: everything that can be sent is then sent, to make room."""
        return len(self._waiters) > 0

    def has_room(self, size_bytes: i64) -> bool:
        return size_bytes <= self.available_bytes and not self._waiters

    def wait(self, waiter: Waiter) -> None:
        self._waiters.append(waiter)
        self._grant()

    def give_up(self, waiter: Waiter) -> None:
        """The waiter has given up; memory granted to it goes to others."""
        if waiter.is_granted:
            self.available_bytes += waiter.size_bytes
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
        self._grant()

    def wake_all(self) -> None:
        """No thread has to wait any more, granted or not: the client is closed."""
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
