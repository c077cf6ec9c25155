"""A bound on the memory of all requests that are arriving or in progress, over all connections.

This is Kafka's `queued.max.request.bytes`. A request counts from its arrival until its response. If there is no room
for a request, its connection is not read from until there is. Very large requests leave a part of the room to the
others.

Small requests have a room of their own, so they are served whatever clients with large ones do. Most of them arrive as
a whole and do not count. Those that arrive in pieces count, and have to come soon if others wait.

No request can hold the room for ever. The oldest request always gets the room that it needs, so that no request waits
while all others wait for it; the total may exceed the bound by this one request. While a request waits for room, a
request that makes no progress is ended with its connection.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Handle, TimerHandle
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

UNLIMITED: Final = -1
# A usual batch of 64 KiB fits in.
SMALL_BYTES: Final = 128 * 1024
# The room of small requests is as large as this part of the other one.
SMALL_PART: Final = 4
# Requests above this size leave this part of the room to the others.
VERY_LARGE_BYTES: Final = 2 << 20
LEFT_TO_OTHERS: Final = 4
# While others wait: the maximum time without bytes for a request, and the maximum time for its arrival.
SILENT_MAX_S: Final = 10.0
UNDER_WAY_MAX_S: Final = 60.0
CHECK_EVERY_S: Final = 1.0
# Small requests get this part of the time.
SMALL_HURRY: Final = 5


class RequestMemory:
    def __init__(self, loop: AbstractEventLoop, capacity_bytes: int = UNLIMITED, *, hurry: int = 1) -> None:
        """`hurry` divides the times that requests have while others wait."""
        self._loop = loop
        self._hurry = hurry
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        # Since when each connection holds something, the longest first.
        self._holders: dict[Connection, float] = {}
        # The bytes that each connection waits for, and the size of its request.
        self._waiting: dict[Connection, tuple[int, int]] = {}
        self._check: TimerHandle | None = None
        self._wake_up: Handle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether requests wait, or would have to."""
        return 0 <= self.capacity_bytes <= self.used_bytes or bool(self._waiting)

    def take(self, connection: Connection, count: int, request_bytes: int) -> bool:
        """False if there is no room: the connection is called back when there is."""
        if not self._has_room(connection, count, request_bytes):
            self._waiting[connection] = (count, request_bytes)
            if self._check is None:
                self._check = self._loop.call_later(CHECK_EVERY_S, self._end_the_silent)
            return False
        self.used_bytes += count
        if connection not in self._holders:
            self._holders[connection] = self._loop.time()
        return True

    def has(self, connection: Connection) -> bool:
        """Whether the connection holds something, or waits for it."""
        return connection in self._holders or connection in self._waiting

    def give_back(self, connection: Connection, count: int) -> None:
        """All that the connection holds."""
        self._waiting.pop(connection, None)
        self._holders.pop(connection, None)
        self.used_bytes -= count
        if self._waiting and self._wake_up is None:
            # Once for all that is given back now: a thousand connections may be closed together.
            self._wake_up = self._loop.call_soon(self._wake)

    def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            self._check = None
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None

    def _has_room(self, connection: Connection, count: int, request_bytes: int) -> bool:
        capacity_bytes = self.capacity_bytes
        if capacity_bytes < 0:
            return True
        if request_bytes > VERY_LARGE_BYTES:
            capacity_bytes -= capacity_bytes // LEFT_TO_OTHERS
        if self.used_bytes + count <= capacity_bytes:
            return True
        return next(iter(self._holders), connection) is connection

    def _wake(self) -> None:
        """Waiting connections take the room in the order of their arrival. They ask again when they read."""
        self._wake_up = None
        for connection, (count, request_bytes) in list(self._waiting.items()):
            if self._has_room(connection, count, request_bytes):
                del self._waiting[connection]
                if connection in self._holders:
                    # The time that it had to wait is not its own.
                    self._holders[connection] = self._loop.time()
                connection.memory_is_free()

    def _end_the_silent(self) -> None:
        self._check = None
        if not self._waiting:
            return
        now_s = self._loop.time()
        for connection, since_s in list(self._holders.items()):
            if connection in self._waiting or connection.is_awaiting_reply:
                continue
            is_silent = now_s - connection.last_active_s > SILENT_MAX_S / self._hurry
            if is_silent or now_s - since_s > UNDER_WAY_MAX_S / self._hurry:
                connection.close(
                    f"its request took longer than {now_s - since_s:.0f} s to come, and others wait for memory"
                    " (queued.max.request.bytes)"
                )
        self._wake()
        if self._waiting:
            self._check = self._loop.call_later(CHECK_EVERY_S, self._end_the_silent)
