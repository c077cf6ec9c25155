"""Framing: every stream is fed whole, byte by byte and in random pieces, and must give the same frames."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.frames import (
    FIRST_ALLOCATION_BYTES,
    LARGE_BYTES,
    SIZE,
    SIZE_BYTES,
    FrameError,
    FrameReader,
)
from tests.sampling import cases, sample

MAX_FRAME_BYTES = 1_000_000

Chunking = Callable[[bytes], Iterable[bytes]]


def whole(stream: bytes) -> Iterator[bytes]:
    yield stream


def byte_by_byte(stream: bytes) -> Iterator[bytes]:
    return (stream[at : at + 1] for at in range(len(stream)))


def at_random(stream: bytes) -> Iterator[bytes]:
    rng = random.Random(len(stream))
    position = 0
    while position < len(stream):
        count = rng.choice((1, 2, 3, 4, 5, 100, 4096, 100_000))
        yield stream[position : position + count]
        position += count


CHUNKINGS = [whole, byte_by_byte, at_random]


def reader(*, max_frame_bytes: int = MAX_FRAME_BYTES, receive_buffer_bytes: int = 1024) -> FrameReader:
    return FrameReader(max_frame_bytes=max_frame_bytes, receive_buffer=bytearray(receive_buffer_bytes))


def stream_of(payloads: Iterable[bytes]) -> bytes:
    return b"".join(SIZE.pack(len(payload)) + payload for payload in payloads)


def frames_of(chunks: Iterable[bytes], frames: FrameReader) -> list[bytes]:
    return [frame for chunk in chunks for frame in frames.feed(chunk)]


def receive(frames: FrameReader, stream: bytes, piece_bytes: int) -> list[bytes]:
    """As a connection does it, by as much as is asked for and has come."""
    result: list[bytes] = []
    position = 0
    while position < len(stream):
        missing_bytes = frames.missing_bytes
        if missing_bytes:
            piece = stream[position : position + min(piece_bytes, missing_bytes)]
            result += frames.take(piece)
        else:
            buffer = frames.next_buffer()
            assert len(buffer) > 0
            piece = stream[position : position + min(piece_bytes, len(buffer))]
            buffer[: len(piece)] = piece
            result += frames.received(len(piece))
        position += len(piece)
    return result


PAYLOADS = [
    b"",
    b"a",
    b"abcd",
    b"",
    bytes(range(256)) * 17,
    b"x" * 1019,
    b"y" * 1020,
    b"z" * 1021,
    b"",
    b"end",
]


@pytest.mark.parametrize("chunks_of", CHUNKINGS)
@pytest.mark.parametrize("receive_buffer_bytes", [5, 64, 1024, 100_000])
def test_any_chunking_gives_the_same_frames(chunks_of: Chunking, receive_buffer_bytes: int) -> None:
    frames = reader(receive_buffer_bytes=receive_buffer_bytes)
    assert frames_of(chunks_of(stream_of(PAYLOADS)), frames) == PAYLOADS
    assert not frames.in_frame
    assert frames.error is None


@pytest.mark.parametrize("piece_bytes", [1, 3, 4, 7, 1000, 1 << 20])
def test_received_in_place(piece_bytes: int) -> None:
    assert receive(reader(), stream_of(PAYLOADS), piece_bytes) == PAYLOADS


@pytest.mark.parametrize("receive_buffer_bytes", [64, 200_000, 400_000])
@pytest.mark.parametrize("piece_bytes", [4096, 65_536, 1 << 20])
def test_frames_larger_than_every_buffer(piece_bytes: int, receive_buffer_bytes: int) -> None:
    rng = random.Random(7)
    payloads = [rng.randbytes(size) for size in (FIRST_ALLOCATION_BYTES, 3, 500_001, MAX_FRAME_BYTES, 70_000)]
    frames = reader(receive_buffer_bytes=receive_buffer_bytes)
    assert receive(frames, stream_of(payloads), piece_bytes) == payloads


@settings(derandomize=True, deadline=None, max_examples=cases(100, fast=25))
@given(st.lists(st.binary(max_size=60), max_size=8), st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_any_frames_in_any_pieces(payloads: list[bytes], counts: list[int]) -> None:
    stream = stream_of(payloads)
    frames = reader(receive_buffer_bytes=16)
    result: list[bytes] = []
    position = 0
    for count in [*counts, len(stream)]:
        result += frames.feed(stream[position : position + count])
        position += count
    assert result == payloads


def test_frames_are_not_touched_by_what_comes_later() -> None:
    """Connections share one receive buffer: a frame that was handed out must have memory of its own."""
    shared = bytearray(64)
    one = FrameReader(max_frame_bytes=100, receive_buffer=shared)
    other = FrameReader(max_frame_bytes=100, receive_buffer=shared)
    first = one.feed(stream_of([b"first", b"second"]) + SIZE.pack(5) + b"th")
    assert other.feed(stream_of([b"OTHER", b"OTHER!"])) == [b"OTHER", b"OTHER!"]
    assert first == [b"first", b"second"]
    assert one.feed(b"ird") == [b"third"]


def test_a_large_payload_that_comes_in_one_piece_is_not_copied() -> None:
    frames = reader()
    payloads = [random.Random(number).randbytes(LARGE_BYTES) for number in range(3)]
    frames.feed(stream_of(payloads[:1]))
    for payload in payloads[1:]:
        size = frames.next_buffer()
        assert len(size) == SIZE_BYTES
        size[:] = SIZE.pack(len(payload))
        assert frames.received(SIZE_BYTES) == []
        assert frames.missing_bytes == len(payload)
        [frame] = frames.take(payload)
        assert frame is payload


@pytest.mark.parametrize("chunks_of", CHUNKINGS)
@pytest.mark.parametrize("size", [-1, -(2**31), MAX_FRAME_BYTES + 1, 2**31 - 1])
def test_a_bad_size_is_one_clear_error_after_the_good_frames(chunks_of: Chunking, size: int) -> None:
    frames = reader()
    stream = stream_of([b"good", b"too"]) + SIZE.pack(size)
    assert frames_of(chunks_of(stream), frames) == [b"good", b"too"]
    assert isinstance(frames.error, FrameError)
    assert str(size) in str(frames.error)
    assert ("negative" in str(frames.error)) == (size < 0)
    assert (str(MAX_FRAME_BYTES) in str(frames.error)) == (size > 0)
    for call in (frames.next_buffer, lambda: frames.feed(b"more"), lambda: frames.received(1)):
        with pytest.raises(FrameError, match=str(size)):
            call()


def test_what_follows_a_bad_size_is_never_read() -> None:
    frames = reader()
    assert frames.feed(SIZE.pack(-5) + stream_of([b"not a frame"])) == []
    assert frames.error is not None


def test_the_largest_size_is_allowed() -> None:
    frames = reader(max_frame_bytes=10)
    assert frames.feed(stream_of([b"0123456789"])) == [b"0123456789"]
    frames.feed(stream_of([b"0123456789+"]))
    assert "11 bytes" in str(frames.error)


@pytest.mark.parametrize("count", range(1, 8))
def test_a_stream_that_ends_in_a_frame_says_so(count: int) -> None:
    frames = reader()
    assert not frames.in_frame
    frames.feed(stream_of([b"abcd"])[:count])
    assert frames.in_frame
    frames.feed(stream_of([b"abcd"])[count:])
    assert not frames.in_frame


def test_memory_grows_with_what_arrives_not_with_what_is_announced() -> None:
    limit = 2**31 - 1
    shared = bytearray(4096)
    tracemalloc.start()
    try:
        readers = [FrameReader(max_frame_bytes=limit, receive_buffer=shared) for _ in range(8)]
        for frames in readers:
            frames.feed(SIZE.pack(limit) + b"x" * 10)
        announced_peak_bytes = tracemalloc.get_traced_memory()[1]
        for frames in readers:
            frames.feed(b"x" * 1_000_000)
        arrived_peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert announced_peak_bytes < 8 * 2 * FIRST_ALLOCATION_BYTES
    assert arrived_peak_bytes < 8 * 4_000_000


@pytest.mark.parametrize("piece_bytes", sample([1, 7, 4_000], fast=2))
def test_a_payload_in_many_pieces_is_kept_in_few(piece_bytes: int) -> None:
    """A peer that sends byte by byte costs neither memory, an object a byte, nor time, a copy of all for each."""
    frames = FrameReader(max_frame_bytes=1 << 30, receive_buffer=bytearray(4096))
    payload = random.Random(5).randbytes(20_000 * piece_bytes)
    frames.feed(SIZE.pack(len(payload)))
    result: list[bytes] = []
    for position in range(0, len(payload), piece_bytes):
        result += frames.take(payload[position : position + piece_bytes])
        small = [len(chunk) for chunk in frames._chunks if len(chunk) < LARGE_BYTES]
        assert small == sorted(small, reverse=True)
        assert len(small) <= 2 + LARGE_BYTES.bit_length()
        assert len(frames._chunks) - len(small) <= len(payload) // LARGE_BYTES
    assert result == [payload]
