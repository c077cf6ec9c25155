from __future__ import annotations

import struct

import pytest

from barnabas.log.file_system import CREATE
from barnabas.log.segment.sparse_index import CorruptIndex
from barnabas.log.segment.time_index import TimeIndex
from tests.log.simulated import SimulatedFileSystem

PATH = "/00000000000000000100.timeindex"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def index(fs: SimulatedFileSystem) -> TimeIndex:
    """An index from base offset 100 with room for six entries, of which it has three."""
    index = TimeIndex(fs, PATH, 100, 6 * 12 + 5)
    index.create()
    for number in (1, 2, 3):
        index.maybe_append(2**40 * number, 100 + 10 * number)
    return index


def packed(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def test_its_format(fs: SimulatedFileSystem, index: TimeIndex) -> None:
    assert fs.size_of(PATH) == 72
    index.close()
    assert fs.read_file(PATH) == packed((2**40, 10), (2**41, 20), (3 * 2**40, 30))


def test_the_latest_entry_not_after_is_found(index: TimeIndex) -> None:
    assert index.lookup(-1) == (-1, 100)
    assert index.lookup(2**40 - 1) == (-1, 100)
    assert index.lookup(2**40) == (2**40, 110)
    assert index.lookup(2**41 + 2**39) == (2**41, 120)
    assert index.lookup(2**62) == (3 * 2**40, 130)


def test_only_a_later_timestamp_is_appended(index: TimeIndex) -> None:
    index.maybe_append(3 * 2**40, 130)
    index.maybe_append(3 * 2**40, 135)
    assert index.entry_count == 3
    index.maybe_append(3 * 2**40 + 1, 135)
    assert index.last_entry == (3 * 2**40 + 1, 135)


def test_an_earlier_timestamp_or_offset_is_refused(index: TimeIndex) -> None:
    with pytest.raises(CorruptIndex, match="which is later"):
        index.maybe_append(2**40, 140)
    with pytest.raises(CorruptIndex, match="which is later"):
        index.maybe_append(2**50, 120)


def test_records_without_timestamps_have_no_entries(fs: SimulatedFileSystem) -> None:
    index = TimeIndex(fs, PATH, 100, 1_000)
    index.create()
    index.maybe_append(-1, 100)
    assert index.entry_count == 0
    assert index.last_entry == (-1, 100)
    index.maybe_append(0, 105)
    assert index.entries() == [(0, 105)]


def test_a_slot_is_kept_for_the_last_entry(index: TimeIndex) -> None:
    assert not index.is_full
    index.maybe_append(2**50, 140)
    assert not index.is_full
    index.maybe_append(2**50 + 1, 150)
    assert index.is_full
    index.maybe_append(2**50 + 2, 160)
    assert index.entry_count == 6


@pytest.mark.parametrize(("offset", "left"), [(0, 0), (110, 0), (111, 1), (130, 2), (131, 3)])
def test_truncation_goes_by_offset(index: TimeIndex, offset: int, left: int) -> None:
    index.truncate_to(offset)
    assert index.entry_count == left
    assert index.last_entry == ((2**40 * left, 100 + 10 * left) if left else (-1, 100))


def test_it_is_read_back(fs: SimulatedFileSystem, index: TimeIndex) -> None:
    index.close()
    again = TimeIndex(fs, PATH, 100, 1_000)
    assert again.last_entry == (3 * 2**40, 130)
    assert again.entries() == [(2**40, 110), (2**41, 120), (3 * 2**40, 130)]


def test_a_file_that_is_not_a_number_of_entries_is_damaged(fs: SimulatedFileSystem, index: TimeIndex) -> None:
    index.close()
    fs.open(PATH, CREATE).truncate(25)
    with pytest.raises(CorruptIndex, match="not a number of entries"):
        TimeIndex(fs, PATH, 100, 1_000).entries()
