"""Frames out of a stream of bytes, without IO.

    frame  =  size: int32, big-endian  |  payload: `size` bytes

A connection asks where to receive and reports the received bytes. It gets back the payloads that are now complete, as
`bytes`. There are two ways to receive, and the reader says which one applies. `next_buffer` is a buffer for any bytes;
small frames, many at a time, are cut out of it. If there is no such buffer, the connection receives `missing_bytes` of
a large payload as separate `bytes`. A payload that arrives in one piece is that piece: it is not copied at all. However
a payload arrives, each of its bytes is copied a few times at most.

Between calls a reader holds only the current frame: all connections of a thread share one receive buffer, so an idle
connection costs almost nothing. Memory grows with the received bytes, not with the announced size.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from librt.strings import read_i32_be

from barnabas.errors import InvalidRequest

SIZE: Final = Struct(">i")
SIZE_BYTES: Final = 4
assert SIZE.size == SIZE_BYTES

# Room for a usual 64 KiB batch with its request around it: such a payload is asked for as a whole.
FIRST_ALLOCATION_BYTES: Final = 128 * 1024
# After a payload of this size or more, the next size is received alone, so that what follows it needs no copy.
LARGE_BYTES: Final = 16 * 1024
RECEIVE_BUFFER_BYTES: Final = 256 * 1024


class FrameError(InvalidRequest):
    """A size that no frame can have. The rest of the stream has no meaning."""


class FrameReader:
    """Cuts one connection's stream into frames.

    The requests before a bad size are valid and are returned. From then on `error` has the bad size, and every later
    call raises it.
    """

    __slots__ = (
        "_arrived",
        "_chunks",
        "_max_frame_bytes",
        "_payload_bytes",
        "_receive_view",
        "_receives_size_alone",
        "_size",
        "_size_arrived",
        "error",
    )

    error: FrameError | None
    _max_frame_bytes: int
    _receive_view: memoryview
    _receives_size_alone: bool
    _size: bytearray
    _size_arrived: int
    _payload_bytes: int
    _chunks: list[bytes]
    _arrived: int

    def __init__(self, *, max_frame_bytes: int, receive_buffer: bytearray) -> None:
        assert len(receive_buffer) > SIZE_BYTES
        self.error = None
        self._max_frame_bytes = max_frame_bytes
        # Made once: a view of a buffer costs as much as to split it.
        self._receive_view = memoryview(receive_buffer)
        self._receives_size_alone = False
        # The frame under way: the part of its size that has come, then the chunks of its payload. -1 is a size that
        # is not known yet.
        self._size = bytearray(SIZE_BYTES)
        self._size_arrived = 0
        self._payload_bytes = -1
        self._chunks = []
        self._arrived = 0

    def set_max_frame_bytes(self, max_frame_bytes: int) -> None:
        """For the frames whose sizes are received from now on."""
        self._max_frame_bytes = max_frame_bytes

    def receive_size_alone(self) -> None:
        """The next size is received without what follows it."""
        self._receives_size_alone = True

    @property
    def in_frame(self) -> bool:
        """Whether the stream would end in the middle of a frame if it ended here."""
        return self._size_arrived > 0 or self._payload_bytes >= 0

    @property
    def is_among_large(self) -> bool:
        """Whether the last frame was a large one, or the frame under way has begun to come."""
        return self._receives_size_alone or self.in_frame

    @property
    def missing_bytes(self) -> int:
        """How many bytes to receive and pass to `take`; 0 if `next_buffer` is to be used."""
        if self._payload_bytes < 0:
            return 0
        return min(self._payload_bytes - self._arrived, max(FIRST_ALLOCATION_BYTES, self._arrived))

    @property
    def payload_bytes(self) -> int:
        """The size of the frame under way; -1 if that is not known yet, or there is none."""
        return self._payload_bytes

    @property
    def arrived_bytes(self) -> int:
        """How much of the payload under way has come."""
        return self._arrived

    def next_buffer(self) -> memoryview:
        """Where to receive next. The view holds until `received` is called, and until another reader is asked."""
        if self.error is not None:
            raise self.error
        assert self._payload_bytes < 0, "the frame under way is received by itself"
        if self._size_arrived or self._receives_size_alone:
            return memoryview(self._size)[self._size_arrived :]
        return self._receive_view

    def received(self, count: int) -> list[bytes]:
        """Takes note of `count` bytes in the buffer that `next_buffer` gave; the frames that they completed."""
        if self.error is not None:
            raise self.error
        if not self._size_arrived and not self._receives_size_alone:
            return self._split(count)
        self._size_arrived += count
        assert self._size_arrived <= SIZE_BYTES
        if self._size_arrived == SIZE_BYTES:
            size: int = read_i32_be(bytes(self._size), 0)
            if self._is_possible(size):
                return self._begin_payload(size, b"")
        return []

    def take(self, data: bytes) -> list[bytes]:
        """Takes at most `missing_bytes` of the payload under way; the frame that they completed."""
        if self.error is not None:
            raise self.error
        chunks = self._chunks
        self._arrived += len(data)
        assert self._arrived <= self._payload_bytes
        if self._arrived < self._payload_bytes:
            chunks.append(data)
            # Small chunks are joined with their equals: few are kept, however small they come.
            while len(chunks) > 1 and LARGE_BYTES > len(chunks[-1]) >= len(chunks[-2]):
                last = chunks.pop()
                chunks[-1] += last
            return []
        if chunks:
            chunks.append(data)
            data = b"".join(chunks)
            self._chunks = []
        self._receives_size_alone = self._payload_bytes >= LARGE_BYTES
        self._payload_bytes = -1
        self._arrived = 0
        return [data]

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The same for bytes that are in memory already."""
        frames: list[bytes] = []
        rest = memoryview(data)
        while len(rest) > 0:
            count = self.missing_bytes
            if count:
                piece = bytes(rest[:count])
                count = len(piece)
                frames += self.take(piece)
            else:
                buffer = self.next_buffer()
                count = min(len(buffer), len(rest))
                buffer[:count] = rest[:count]
                frames += self.received(count)
                if self.error is not None:
                    break
            rest = rest[count:]
        return frames

    def _split(self, count: int) -> list[bytes]:
        """Takes whole frames out of the shared receive buffer, and keeps the rest."""
        frames: list[bytes] = []
        # One copy, from which compiled code reads sizes and cuts frames without a call.
        data = bytes(self._receive_view[:count])
        assert len(data) == count
        position = 0
        while count - position >= SIZE_BYTES:
            # Without the type, compiled code would add in 32 bits below, and overflow.
            size: int = read_i32_be(data, position)
            if not self._is_possible(size):
                return frames
            position += SIZE_BYTES
            end = position + size
            if end > count:
                self._begin_payload(size, data[position:])
                return frames
            frames.append(data[position:end])
            self._receives_size_alone = size >= LARGE_BYTES
            position = end
        if position < count:
            self._size_arrived = count - position
            self._size[: self._size_arrived] = data[position:]
        return frames

    def _is_possible(self, size: int) -> bool:
        """Sets `error` if no frame can have this size."""
        if 0 <= size <= self._max_frame_bytes:
            return True
        if size < 0:
            self.error = FrameError(f"a frame of {size} bytes was announced: a size cannot be negative")
        else:
            self.error = FrameError(
                f"a frame of {size} bytes was announced, but at most {self._max_frame_bytes} bytes are allowed"
            )
        return False

    def _begin_payload(self, size: int, arrived: bytes) -> list[bytes]:
        """The frame, if it is one without a payload."""
        self._size_arrived = 0
        self._payload_bytes = size
        return self.take(arrived) if arrived or not size else []
