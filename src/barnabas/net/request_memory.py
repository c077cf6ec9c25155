"""What half-sent requests and requests under way may hold in memory, of all connections together.

Kafka's `queued.max.request.bytes`. A request is counted as it arrives, and until it is answered. Small ones are not
counted, so whatever others do, they are always served. A connection whose request has no room is not read from until
there is some. Very large requests leave a part of the room to the others.

Nobody can hold the room for ever. The request that is under way longest always gets what it needs, so that there is
never one that all wait for and that waits itself; what is held can exceed the bound by this one. And while somebody
waits, a request that does not get on is ended with its connection.
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
# While others wait: for so long nothing may come of a request, and so long it may take in all.
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
        # What each connection waits for: how much, and for a request of which size.
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
        """Those who wait take what there is in the order in which they came. They ask again when they read."""
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
