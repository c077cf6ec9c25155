"""What a connection has to send goes out in few calls, and small slices of files with what stands around them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.errors import KafkaStorageError
from barnabas.net.channel import MAX_PARTS_AT_ONCE
from barnabas.net.outbox import READ_AHEAD_BYTES_MAX, READ_BYTES_MAX, ColdRange, Outbox
from barnabas.primitives.file_slice import FileSlice, OpenFile
from tests.net.plain_file import PlainFile

CONTENT = os.urandom(1 << 20)
# Of which the channel has taken a part.
BLOCKED = -1


class RecordingChannel:
    """Takes at most so many bytes of each call, and of each file what is asked for."""

    def __init__(self, *takes: int) -> None:
        self.calls: list[tuple[str, int, bool]] = []
        self.received = bytearray()
        self._takes = list(takes)

    def fileno(self) -> int:
        raise NotImplementedError

    def receive_into(self, buffer: memoryview) -> int:
        raise NotImplementedError

    def receive(self, max_bytes: int) -> bytes | None:
        raise NotImplementedError

    def has_ended(self) -> bool:
        raise NotImplementedError

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more_follows: bool) -> int:
        data = b"".join(parts)
        taken = self._takes.pop(0) if self._takes else len(data)
        if taken == BLOCKED:
            raise BlockingIOError
        self.calls.append(("bytes", len(parts), more_follows))
        self.received += data[:taken]
        return min(taken, len(data))

    def send_file(self, file: OpenFile, position: int, count: int) -> int:
        self.calls.append(("file", count, False))
        data = file.pread(count, position)
        self.received += data
        return len(data)

    def close(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError


class BrokenFile(PlainFile):
    def pread(self, size_bytes: int, position: int) -> bytes:
        raise KafkaStorageError("cannot read: Input/output error")


class ChannelOfBrokenFile(RecordingChannel):
    def send_file(self, file: OpenFile, position: int, count: int) -> int:
        raise OSError("Input/output error")


@pytest.fixture
def file(tmp_path: Path) -> PlainFile:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    return PlainFile(path)


def always(file: OpenFile, position: int, count: int) -> bool:
    return True


def outbox_of(*parts: bytes | FileSlice, is_cached: bool = True) -> Outbox:
    outbox = Outbox(always if is_cached else lambda file, position, count: False)
    for part in parts:
        outbox.add(part)
    return outbox


def test_small_slices_go_out_in_one_call_with_what_is_around_them(file: PlainFile) -> None:
    outbox = outbox_of(b"head", FileSlice(file, 5, 100), b"between", FileSlice(file, 900, 1), b"tail")
    channel = RecordingChannel()
    assert outbox.flush(channel)
    assert channel.calls == [("bytes", 5, False)]
    assert channel.received == b"head" + CONTENT[5:105] + b"between" + CONTENT[900:901] + b"tail"
    assert outbox.pending_bytes == 0


def test_a_large_slice_is_sent_from_its_file(file: PlainFile) -> None:
    size = READ_BYTES_MAX + 1
    outbox = outbox_of(b"head", FileSlice(file, 0, 10), FileSlice(file, 7, size), b"tail")
    channel = RecordingChannel()
    assert outbox.flush(channel)
    assert channel.calls == [("bytes", 2, True), ("file", size, False), ("bytes", 1, False)]
    assert channel.received == b"head" + CONTENT[:10] + CONTENT[7 : 7 + size] + b"tail"


def test_a_slice_that_is_not_in_memory_is_waited_for(file: PlainFile) -> None:
    outbox = outbox_of(b"head", FileSlice(file, 3, 10), b"tail", is_cached=False)
    channel = RecordingChannel()
    with pytest.raises(ColdRange) as cold:
        outbox.flush(channel)
    assert (cold.value.position, cold.value.count) == (3, 10)
    assert channel.received == b"head"
    outbox.trust_next_chunk()
    assert outbox.flush(channel)
    assert channel.received == b"head" + CONTENT[3:13] + b"tail"


def test_a_small_slice_that_was_waited_for_vouches_for_no_other(file: PlainFile) -> None:
    cached: list[int] = []
    outbox = Outbox(lambda _file, position, _count: position in cached)
    outbox.add(FileSlice(file, 3, 10))
    outbox.add(FileSlice(file, 100, READ_BYTES_MAX + 1))
    with pytest.raises(ColdRange):
        outbox.flush(RecordingChannel())
    cached.append(3)
    outbox.trust_next_chunk()
    with pytest.raises(ColdRange) as cold:
        outbox.flush(RecordingChannel())
    assert cold.value.position == 100


def test_a_small_slice_that_cannot_be_read_is_left_to_the_channel(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    outbox = outbox_of(b"head", FileSlice(BrokenFile(path), 3, 10))
    channel = ChannelOfBrokenFile()
    with pytest.raises(OSError, match="Input/output error"):
        outbox.flush(channel)
    assert channel.received == b"head"


def test_small_slices_count_for_a_turn(file: PlainFile) -> None:
    outbox = outbox_of(*(FileSlice(file, 0, READ_BYTES_MAX) for _ in range(600)))
    channel = RecordingChannel()
    turns = 1
    while not outbox.flush(channel):
        turns += 1
    assert turns == 3
    assert channel.received == CONTENT[:READ_BYTES_MAX] * 600


def test_what_a_peer_does_not_take_is_sent_later(file: PlainFile) -> None:
    outbox = outbox_of(b"head", FileSlice(file, 5, 100), b"tail")
    channel = RecordingChannel(50, BLOCKED)
    with pytest.raises(BlockingIOError):
        outbox.flush(channel)
    assert outbox.pending_bytes == 58
    assert outbox.flush(channel)
    assert channel.received == b"head" + CONTENT[5:105] + b"tail"


def test_little_is_read_for_a_peer_that_takes_nothing(file: PlainFile) -> None:
    slices = [FileSlice(file, index * READ_BYTES_MAX, READ_BYTES_MAX) for index in range(64)]
    outbox = outbox_of(*slices)
    reads: list[int] = []
    channel = RecordingChannel(*[BLOCKED] * 10)
    pread = file.pread

    class CountingFile(PlainFile):
        def __init__(self) -> None:
            self._descriptor = os.dup(file.fileno())

        def pread(self, size_bytes: int, position: int) -> bytes:
            reads.append(size_bytes)
            return pread(size_bytes, position)

    counting = CountingFile()
    for each in slices:
        each.file = counting
    for _ in range(10):
        with pytest.raises(BlockingIOError):
            outbox.flush(channel)
    assert sum(reads) <= READ_AHEAD_BYTES_MAX + READ_BYTES_MAX
    assert outbox.flush(channel)
    assert channel.received == CONTENT[: 64 * READ_BYTES_MAX]


def test_many_small_parts_go_out_in_calls_of_bounded_size(file: PlainFile) -> None:
    outbox = outbox_of(*(FileSlice(file, index, 1) for index in range(3 * MAX_PARTS_AT_ONCE)))
    channel = RecordingChannel()
    assert outbox.flush(channel)
    assert [parts for _, parts, _ in channel.calls] == [MAX_PARTS_AT_ONCE] * 3
    assert channel.received == CONTENT[: 3 * MAX_PARTS_AT_ONCE]
