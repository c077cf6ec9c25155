"""The bytes and file slices that one connection has yet to send, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from barnabas.errors import KafkaStorageError
from barnabas.net.channel import MAX_PARTS_AT_ONCE, Channel
from barnabas.primitives.file_slice import FileSlice, OpenFile

# One connection begins no further call after it has sent this much, so that others have their turn.
BYTES_A_TURN: Final = 4 << 20
# As much of a file is looked up in the page cache, or read ahead, at once.
CHUNK_BYTES: Final = 1 << 20
# A slice of so few bytes is read, and goes out in one call and one packet with what stands around it.
READ_BYTES_MAX: Final = 16 * 1024
# No more is read before the peer has taken what stands before it.
READ_AHEAD_BYTES_MAX: Final = 64 * 1024

Part = bytes | bytearray | memoryview | FileSlice

# Whether a range of a file can be sent without waiting for the disk.
IsCached = Callable[[OpenFile, int, int], bool]


@mypyc_attr(native_class=False)
class FileEndedEarly(OSError):
    """A file was truncated while a slice of it was being sent, so the reply cannot be completed."""


@mypyc_attr(native_class=False)
class ColdRange(Exception):
    """The next bytes to send are not in memory. A thread has to read them first."""

    def __init__(self, part: FileSlice, position: int, count: int) -> None:
        super().__init__(position, count)
        self.part = part
        self.position = position
        self.count = count


class Outbox:
    __slots__ = ("_is_cached", "_is_next_chunk_read", "_parts", "_sent_of_first", "pending_bytes")

    def __init__(self, is_cached: IsCached) -> None:
        self._is_cached = is_cached
        self._parts: deque[Part] = deque()
        self._sent_of_first = 0
        self._is_next_chunk_read = False
        self.pending_bytes = 0

    def trust_next_chunk(self) -> None:
        """The cold range has been read: it is sent now, even if memory is so short that it has gone again."""
        self._is_next_chunk_read = True

    def add(self, part: Part) -> None:
        if len(part):
            self.pending_bytes += len(part)
            self._parts.append(part)

    def flush(self, channel: Channel) -> bool:
        """Sends what can be sent now; True if nothing is left.

        BlockingIOError and other errors of the socket come through; so does ColdRange.
        """
        sent_bytes = 0
        while self._parts:
            if sent_bytes >= BYTES_A_TURN:
                return False
            first = self._parts[0]
            if isinstance(first, FileSlice) and self._read_slice(0, first) is None:
                sent_bytes += self._send_slice(channel, first)
            else:
                sent_bytes += self._send_bytes(channel)
        return True

    def clear(self) -> None:
        self._parts.clear()
        self._sent_of_first = 0
        self.pending_bytes = 0

    def _send_bytes(self, channel: Channel) -> int:
        parts: list[bytes | bytearray | memoryview] = []
        more_follows = False
        size_bytes = 0
        for index in range(min(len(self._parts), MAX_PARTS_AT_ONCE)):
            part = self._parts[index]
            if isinstance(part, FileSlice):
                data = self._read_slice(index, part) if size_bytes < READ_AHEAD_BYTES_MAX else None
                if data is None:
                    more_follows = True
                    break
                part = data
            size_bytes += len(part)
            parts.append(part)
        if self._sent_of_first:
            parts[0] = memoryview(parts[0])[self._sent_of_first :]
        sent = channel.send(parts, more_follows=more_follows)
        self.pending_bytes -= sent
        unassigned = sent
        for part in parts:
            if unassigned < len(part):
                self._sent_of_first += unassigned
                break
            unassigned -= len(part)
            self._parts.popleft()
            self._sent_of_first = 0
        return sent

    def _read_slice(self, index: int, part: FileSlice) -> bytes | None:
        """The bytes in place of a small slice; None if it is larger, was begun, or would have to be waited for.

        None also if it cannot be read: sending it from its file then raises what closes the connection.
        """
        size_bytes = part.size_bytes
        if size_bytes > READ_BYTES_MAX or (index == 0 and self._sent_of_first):
            return None
        if not self._is_cached(part.file, part.position, size_bytes):
            return None
        try:
            data = part.file.pread(size_bytes, part.position)
        except KafkaStorageError:
            return None
        if len(data) != size_bytes:
            return None
        if index == 0:
            self._is_next_chunk_read = False
        self._parts[index] = data
        return data

    def _send_slice(self, channel: Channel, part: FileSlice) -> int:
        position = part.position + self._sent_of_first
        count = min(part.size_bytes - self._sent_of_first, CHUNK_BYTES)
        if self._is_next_chunk_read:
            self._is_next_chunk_read = False
        elif not self._is_cached(part.file, position, count):
            raise ColdRange(part, position, count)
        sent = channel.send_file(part.file, position, count)
        if sent == 0:
            raise FileEndedEarly(f"{part} ended at {position}: its file was truncated")
        self.pending_bytes -= sent
        self._sent_of_first += sent
        if self._sent_of_first == part.size_bytes:
            self._parts.popleft()
            self._sent_of_first = 0
        return sent
