"""Recovery of a segment: the log is cut before the first batch that is not whole, and the indexes are rebuilt."""

from __future__ import annotations

import errno
from random import Random

import pytest

from barnabas.log.file_system import CREATE, StorageFailure
from barnabas.log.segment.segment import Segment, SegmentOffsetOverflow
from barnabas.log.segment.sparse_index import CorruptIndex
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.model import Offset, ProducerId
from barnabas.records.header import BatchHeader, CorruptRecord, iterate_headers
from tests.log.segment_fixtures import DIRECTORY, append, create_segment, make_batch, open_segment
from tests.log.simulated import SimulatedFileSystem
from tests.sampling import seeds

INTERVAL_BYTES = 300


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_dirs(DIRECTORY)
    return fs


def batches(count: int = 40, *, first: int = 0) -> list[bytes]:
    return [
        make_batch(5 * number, 5, timestamp=1_000 + 10 * (number ^ 3), value_bytes=10 + number)
        for number in range(first, first + count)
    ]


def filled(fs: SimulatedFileSystem) -> Segment:
    segment = create_segment(fs, index_interval_bytes=INTERVAL_BYTES)
    for batch in batches():
        append(segment, batch)
    return segment


def reopened(fs: SimulatedFileSystem) -> Segment:
    return open_segment(fs, index_interval_bytes=INTERVAL_BYTES)


def index_files(fs: SimulatedFileSystem) -> dict[str, bytes]:
    return {path: content for path, content in fs.walk() if path.endswith("index")}


def test_recovered_indexes_equal_those_of_a_clean_stop(fs: SimulatedFileSystem) -> None:
    filled(fs).close()
    clean = index_files(fs)
    assert all(clean.values())
    for path in clean:
        fs.open(path, CREATE).pwrite(b"\xff" * 100, 0)
    segment = reopened(fs)
    assert segment.recover() == 0
    segment.close()
    assert index_files(fs) == clean


def test_missing_indexes_are_made_anew(fs: SimulatedFileSystem) -> None:
    filled(fs).close()
    clean = index_files(fs)
    for path in clean:
        fs.remove(path)
    segment = reopened(fs)
    with pytest.raises(CorruptIndex, match="is missing"):
        segment.sanity_check(has_offset_index=False, has_time_index=False)
    segment.recover()
    segment.close()
    assert index_files(fs) == clean


def test_a_missing_time_index_alone_is_missed(fs: SimulatedFileSystem) -> None:
    filled(fs).close()
    fs.remove(f"{DIRECTORY}/00000000000000000000.timeindex")
    with pytest.raises(CorruptIndex, match="timeindex is missing"):
        reopened(fs).sanity_check(has_offset_index=True, has_time_index=False)


def test_every_batch_is_shown(fs: SimulatedFileSystem) -> None:
    segment = filled(fs)
    shown: list[bytes] = []

    def show(header: BatchHeader, data: bytes, position: int) -> None:
        shown.append(data[position : position + header.size_bytes])

    segment.recover(show)
    assert shown == batches()


def test_batches_larger_than_a_chunk_are_shown_whole(fs: SimulatedFileSystem) -> None:
    large = [make_batch(number, value_bytes=700_000 * (1 + number % 2)) for number in range(6)]
    segment = create_segment(fs, index_interval_bytes=4_096)
    for batch in large:
        append(segment, batch)
    shown: list[bytes] = []

    def show(header: BatchHeader, data: bytes, position: int) -> None:
        shown.append(data[position : position + header.size_bytes])

    assert segment.recover(show) == 0
    assert shown == large


def test_what_the_callback_refuses_is_cut_off(fs: SimulatedFileSystem) -> None:
    segment = filled(fs)

    def refuse(header: BatchHeader, data: bytes, position: int) -> None:
        if header.base_offset == 100:
            raise CorruptRecord("a control record that is none")

    assert segment.recover(refuse) > 0
    assert segment.read_next_offset() == 100
    assert all(entry.offset < 100 for entry in segment.offset_index.entries())
    assert all(entry.offset < 100 for entry in segment.time_index.entries())


@pytest.mark.parametrize("base_offset", [0, 95, 99, -1, 1 << 40])
def test_an_offset_that_cannot_follow_is_damage(fs: SimulatedFileSystem, base_offset: int) -> None:
    """The checksum does not cover it."""
    segment = filled(fs)
    position = next(position for position, header in segment.batches() if header.base_offset == 100)
    segment.close()
    fs.open(segment.path, CREATE).pwrite(base_offset.to_bytes(8, "big", signed=True), position)
    segment = reopened(fs)
    assert segment.recover(cut_on_overflow=True) > 0
    assert segment.size_bytes == position
    assert segment.read_next_offset() == 100


def test_offsets_below_the_base_offset_are_damage(fs: SimulatedFileSystem) -> None:
    segment = create_segment(fs, 10)
    append(segment, make_batch(10))
    segment.close()
    fs.open(segment.path, CREATE).pwrite((9).to_bytes(8, "big"), 0)
    segment = open_segment(fs, 10)
    segment.recover()
    assert segment.size_bytes == 0


def test_an_overflow_is_told_after_what_is_before_it_was_indexed(fs: SimulatedFileSystem) -> None:
    segment = filled(fs)
    segment.close()
    clean = index_files(fs)
    position = segment.size_bytes
    fs.open(segment.path, CREATE).pwrite(make_batch(1 << 40), position)
    segment = reopened(fs)
    with pytest.raises(SegmentOffsetOverflow) as raised:
        segment.recover()
    assert raised.value.position == position
    assert raised.value.offset == 1 << 40
    assert segment.size_bytes == position + len(make_batch(1 << 40)), "nothing is cut"
    segment.close()
    assert index_files(fs) == clean


@pytest.mark.parametrize("position_from_end", [1, 30, 60, 61, 62, 100, 500, 3_000])
def test_a_cut_file_loses_its_last_batch(fs: SimulatedFileSystem, position_from_end: int) -> None:
    segment = filled(fs)
    segment.close()
    size_bytes = segment.size_bytes - position_from_end
    fs.open(segment.path, CREATE).truncate(size_bytes)
    whole = iterate_headers(b"".join(batches())[:size_bytes])
    segment = reopened(fs)
    assert segment.recover() == size_bytes - sum(header.size_bytes for header in whole)
    assert [header.base_offset for _, header in segment.batches()] == [header.base_offset for header in whole]


@pytest.mark.parametrize(
    "garbage", [b"\0" * 5_000, b"\xff" * 17, b"\xff" * 5_000, b"x", bytes(range(256)) * 9]
)
def test_garbage_after_the_last_batch_is_cut_off(fs: SimulatedFileSystem, garbage: bytes) -> None:
    segment = filled(fs)
    segment.close()
    clean = index_files(fs)
    fs.open(segment.path, CREATE).pwrite(garbage, segment.size_bytes)
    segment = reopened(fs)
    assert segment.recover() == len(garbage)
    segment.close()
    assert fs.read_file(segment.path) == b"".join(batches())
    assert index_files(fs) == clean


@pytest.mark.parametrize("seed", range(25))
def test_a_flipped_bit_cuts_before_its_batch(fs: SimulatedFileSystem, seed: int) -> None:
    rng = Random(seed)
    segment = filled(fs)
    segment.close()
    data = bytearray(fs.read_file(segment.path))
    headers = iterate_headers(data)
    damaged = rng.randrange(len(headers))
    start = sum(header.size_bytes for header in headers[:damaged])
    # The checksum covers what comes after it; base offset and leader epoch before it are not protected.
    position = start + rng.randrange(17, headers[damaged].size_bytes)
    data[position] ^= 1 << rng.randrange(8)
    fs.open(segment.path, CREATE).pwrite(data, 0)
    segment = reopened(fs)
    assert segment.recover() == len(data) - start
    assert segment.size_bytes == start
    assert segment.offset_index.entries() == [
        entry for entry in segment.offset_index.entries() if entry.position < start
    ]
    assert segment.read_next_offset() == 5 * damaged


def test_recovery_empties_the_transaction_index_for_the_callback_to_fill(fs: SimulatedFileSystem) -> None:
    segment = filled(fs)
    stale = AbortedTransaction(ProducerId(1), Offset(1), Offset(2), Offset(3))
    segment.transaction_index.append(stale)

    def note(header: BatchHeader, data: bytes, position: int) -> None:
        if header.base_offset in (50, 100):
            offset = Offset(header.base_offset)
            segment.transaction_index.append(AbortedTransaction(ProducerId(7), offset, offset, offset))

    segment.recover(note)
    assert [entry.last_offset for entry in segment.transaction_index.entries()] == [50, 100]


def test_a_preallocated_log_is_cut_to_its_batches(fs: SimulatedFileSystem) -> None:
    segment = create_segment(fs, preallocated_bytes=50_000, index_interval_bytes=INTERVAL_BYTES)
    append(segment, *batches(3))
    segment = reopened(fs.kill())
    assert segment.recover() == 50_000 - len(b"".join(batches(3)))
    assert segment.read_next_offset() == 15


def test_a_recovered_segment_goes_on(fs: SimulatedFileSystem) -> None:
    segment = filled(fs)
    segment.recover()
    for batch in batches(10, first=40):
        append(segment, batch)
    assert segment.read_next_offset() == 250
    assert all(segment.locate(offset) for offset in range(250))


def test_a_disk_that_fails_during_recovery_is_told(fs: SimulatedFileSystem) -> None:
    segment = filled(fs)
    segment.close()
    content = fs.read_file(segment.path)
    fs.inject(segment.path, errno.EIO, operations=("read",))
    with pytest.raises(StorageFailure, match="Input/output error"):
        reopened(fs).recover()
    fs.faults.clear()
    assert fs.read_file(segment.path) == content, "a disk error is no reason to cut a log"


@pytest.mark.parametrize("seed", seeds(150, fast=30))
def test_a_crash_loses_only_what_was_not_flushed(fs: SimulatedFileSystem, seed: int) -> None:
    """Appends and flushes, then a power cut: what is recovered is a beginning of what was appended."""
    rng = Random(seed)
    segment = create_segment(fs, index_interval_bytes=INTERVAL_BYTES)
    segment.flush()
    fs.sync_dir(DIRECTORY)
    appended: list[bytes] = []
    flushed = 0
    for _ in range(rng.randrange(30)):
        if rng.random() < 0.15:
            segment.flush()
            flushed = len(appended)
        else:
            new = [
                make_batch(
                    3 * (len(appended) + number),
                    3,
                    timestamp=rng.randrange(5_000),
                    value_bytes=rng.choice((1, 50, 3_000)),
                )
                for number in range(rng.randrange(1, 4))
            ]
            append(segment, *new)
            appended.extend(new)
    fs = fs.kill().crash(rng) if rng.random() < 0.5 else fs.crash(rng)
    segment = reopened(fs)
    segment.recover()
    content = fs.read_file(segment.path)
    survivors = len(iterate_headers(content))
    assert content == b"".join(appended[:survivors])
    assert survivors >= flushed
    assert segment.read_next_offset() == 3 * survivors
    for offset in range(3 * survivors):
        found = segment.locate(offset)
        assert found is not None
        assert found.position == len(b"".join(appended[: offset // 3]))
    segment.close()
    indexes = index_files(fs)
    again = reopened(fs)
    assert again.recover() == 0
    again.close()
    assert index_files(fs) == indexes
