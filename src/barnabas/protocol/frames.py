"""Frames out of a stream of bytes, without IO.

    frame  =  size: int32, big-endian  |  payload: `size` bytes

A connection asks for the buffer to receive into and says how much came; it gets back the payloads that this
completed, as `bytes`, each in memory of its own. Between calls a reader holds the frame under way and nothing else: all
connections of a thread share one receive buffer, so an idle one costs next to nothing. What is left of a large frame
is received straight into that frame's memory, which grows with what has arrived, not with what the peer has announced.
Each byte is copied a bounded number of times, however it was cut.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from barnabas.errors import InvalidRequest

SIZE: Final = Struct(">i")
SIZE_BYTES: Final = 4
assert SIZE.size == SIZE_BYTES

# Room for a usual 64 KiB batch with its request around it: such a frame is never moved while it arrives.
FIRST_ALLOCATION_BYTES: Final = 128 * 1024
RECEIVE_BUFFER_BYTES: Final = 256 * 1024


class FrameError(InvalidRequest):
    """A size that no frame can have. What follows in the stream has no meaning any more."""


class FrameReader:
    """Cuts one connection's stream into frames.

    The requests ahead of a bad size are good and are returned; the bad size stands in `error` from then on, and
    every later call raises it.
    """

    __slots__ = ("_filled", "_frame", "_frame_size", "_max_frame_bytes", "_receive_buffer", "error")

    error: FrameError | None
    _max_frame_bytes: int
    _receive_buffer: bytearray
    _frame: bytearray
    _frame_size: int
    _filled: int

    def __init__(self, *, max_frame_bytes: int, receive_buffer: bytearray) -> None:
        assert len(receive_buffer) > SIZE_BYTES
        self.error = None
        self._max_frame_bytes = max_frame_bytes
        self._receive_buffer = receive_buffer
        # The frame under way: first its size, then its payload. -1 is a size that is not known yet.
        self._frame = bytearray(SIZE_BYTES)
        self._frame_size = -1
        self._filled = 0

    @property
    def in_frame(self) -> bool:
        """Whether the stream would end in the middle of a frame if it ended here."""
        return self._filled > 0 or self._frame_size >= 0

    def next_buffer(self) -> memoryview:
        """Where to receive next. The view holds until `received` is called, and until another reader is asked."""
        if self.error is not None:
            raise self.error
        if not self.in_frame:
            return memoryview(self._receive_buffer)
        if self._filled == len(self._frame):
            self._grow()
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> list[bytes]:
        """Takes note of `count` bytes in the buffer that `next_buffer` gave; the frames that they completed."""
        if self.error is not None:
            raise self.error
        if not self.in_frame:
            return self._split(count)
        self._filled += count
        assert self._filled <= len(self._frame)
        if self._frame_size < 0 and self._filled == SIZE_BYTES:
            size = self._size_at(self._frame, 0)
            if size >= 0:
                self._begin_payload(size, 0)
        if self._filled == self._frame_size:
            return [self._take_frame()]
        return []

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The same for bytes that are in memory already."""
        frames: list[bytes] = []
        rest = memoryview(data)
        while len(rest) > 0:
            buffer = self.next_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            frames += self.received(count)
            if self.error is not None:
                break
            rest = rest[count:]
        return frames

    def _split(self, count: int) -> list[bytes]:
        """Takes whole frames out of the shared receive buffer, and keeps what is left of it."""
        frames: list[bytes] = []
        data = self._receive_buffer
        assert count <= len(data)
        view = memoryview(data)
        position = 0
        while count - position >= SIZE_BYTES:
            size = self._size_at(data, position)
            if size < 0:
                return frames
            position += SIZE_BYTES
            end = position + size
            if end > count:
                self._begin_payload(size, count - position)
                break
            frames.append(bytes(view[position:end]))
            position = end
        rest = count - position
        self._frame[:rest] = view[position:count]
        self._filled = rest
        return frames

    def _size_at(self, data: bytearray, position: int) -> int:
        """The size that stands there, or -1 with `error` set."""
        size: int = SIZE.unpack_from(data, position)[0]
        if 0 <= size <= self._max_frame_bytes:
            return size
        if size < 0:
            self.error = FrameError(f"a frame of {size} bytes was announced: a size cannot be negative")
        else:
            self.error = FrameError(
                f"a frame of {size} bytes was announced, but at most {self._max_frame_bytes} bytes are allowed"
            )
        return -1

    def _begin_payload(self, size: int, arrived_bytes: int) -> None:
        self._frame = bytearray(min(size, max(FIRST_ALLOCATION_BYTES, 2 * arrived_bytes)))
        self._frame_size = size
        self._filled = 0

    def _grow(self) -> None:
        # A view of the old memory may still be alive, so it cannot be resized in place.
        grown = bytearray(min(self._frame_size, 2 * len(self._frame)))
        grown[: self._filled] = self._frame
        self._frame = grown

    def _take_frame(self) -> bytes:
        frame = bytes(self._frame)
        self._frame = bytearray(SIZE_BYTES)
        self._frame_size = -1
        self._filled = 0
        return frame
