"""A bound on the memory of all requests that are arriving or in progress, over all connections.

This is Kafka's `queued.max.request.bytes`. A request counts from its arrival until its response. Small requests do not
count, so they are always served, whatever other clients do. If there is no room for a request, its connection is not
read from until there is. Very large requests leave a part of the room to the others.

No request can hold the room for ever. The oldest request always gets the room that it needs, so that no request waits
while all others wait for it; the total may exceed the bound by this one request. While a request waits for room, a
request that makes no progress is ended with its connection.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

UNLIMITED: Final = -1
# Requests up to this size are not counted: a usual batch of 64 KiB fits in.
SMALL_BYTES: Final = 128 * 1024
# Requests above this size leave this part of the room to the others.
VERY_LARGE_BYTES: Final = 2 << 20
LEFT_TO_OTHERS: Final = 4
# While others wait: the maximum time without bytes for a request, and the maximum time for its arrival.
SILENT_MAX_S: Final = 10.0
UNDER_WAY_MAX_S: Final = 60.0
CHECK_EVERY_S: Final = 1.0


class RequestMemory:
    def __init__(self, loop: AbstractEventLoop, capacity_bytes: int = UNLIMITED) -> None:
        self._loop = loop
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        # Since when each connection holds something, the longest first.
        self._holders: dict[Connection, float] = {}
        # The bytes that each connection waits for, and the size of its request.
        self._waiting: dict[Connection, tuple[int, int]] = {}
        self._check: TimerHandle | None = None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

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

    def give_back(self, connection: Connection, count: int) -> None:
        """All that the connection holds."""
        self._waiting.pop(connection, None)
        self._holders.pop(connection, None)
        self.used_bytes -= count
        if self._waiting:
            self._wake()

    def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            self._check = None

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
            if now_s - connection.last_active_s > SILENT_MAX_S or now_s - since_s > UNDER_WAY_MAX_S:
                connection.close(
                    f"its request took longer than {now_s - since_s:.0f} s to come, and others wait for memory"
                    " (queued.max.request.bytes)"
                )
        self._wake()
        if self._waiting:
            self._check = self._loop.call_later(CHECK_EVERY_S, self._end_the_silent)
