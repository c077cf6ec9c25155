from __future__ import annotations

import struct
from random import Random

import pytest

from barnabas.log.file_system import CREATE
from barnabas.log.segment.offset_index import SEGMENT_BYTES_MAX, OffsetIndex
from barnabas.log.segment.sparse_index import CorruptIndex
from barnabas.log.side_files import FileDigest
from barnabas.primitives.crc32c import crc32c
from tests.log.simulated import SimulatedFileSystem

PATH = "/00000000000000000100.index"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def make(fs: SimulatedFileSystem, *, max_bytes: int = 83, entries: int = 0) -> OffsetIndex:
    """An index from base offset 100, with an entry every 10 offsets and 1,000 bytes."""
    index = OffsetIndex(fs, PATH, 100, max_bytes)
    index.create()
    for number in range(1, entries + 1):
        index.append(100 + 10 * number, 1_000 * number)
    return index


def packed(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def test_the_file_is_preallocated_to_whole_entries_and_trimmed(fs: SimulatedFileSystem) -> None:
    index = make(fs, max_bytes=83)
    assert fs.size_of(PATH) == 80
    index.append(101, 7)
    index.flush()
    assert fs.read_file(PATH) == packed((1, 7)) + bytes(72)
    index.trim()
    assert fs.read_file(PATH) == packed((1, 7))
    index.append(105, 900)
    index.flush()
    assert fs.size_of(PATH) == 80
    index.close()
    assert fs.read_file(PATH) == packed((1, 7), (5, 900))


def test_the_largest_entry_not_above_is_found(fs: SimulatedFileSystem) -> None:
    index = make(fs, entries=3)
    assert index.lookup(99) == (100, 0)
    assert index.lookup(109) == (100, 0)
    assert index.lookup(110) == (110, 1_000)
    assert index.lookup(129) == (120, 2_000)
    assert index.lookup(2**62) == (130, 3_000)
    assert index.position_for(129) == 2_000
    assert index.positions_around(129) == (2_000, 3_000)
    assert index.positions_around(130) == (3_000, SEGMENT_BYTES_MAX)
    assert index.positions_around(0) == (0, 1_000)


def test_an_empty_index_leads_to_the_start(fs: SimulatedFileSystem) -> None:
    index = make(fs)
    assert index.lookup(150) == (100, 0)
    assert index.positions_around(150) == (0, SEGMENT_BYTES_MAX)
    assert index.last_offset == 100
    assert index.entries() == []
    assert index.upper_bound(0, 1) is None


def test_an_upper_bound_lies_behind_what_is_read(fs: SimulatedFileSystem) -> None:
    index = make(fs, entries=3)
    assert index.upper_bound(0, 1_000) == 110
    assert index.upper_bound(0, 1_001) == 120
    assert index.upper_bound(1_500, 1_000) == 130
    assert index.upper_bound(0, 3_001) is None


def test_offsets_must_rise(fs: SimulatedFileSystem) -> None:
    index = make(fs, entries=1)
    for offset in (110, 105):
        with pytest.raises(CorruptIndex, match="which is not below it"):
            index.append(offset, 5_000)
    assert index.entries() == [(110, 1_000)]


def test_it_is_full_at_its_limit(fs: SimulatedFileSystem) -> None:
    index = make(fs, max_bytes=83, entries=9)
    assert not index.is_full
    index.append(1_000, 10_000)
    assert index.is_full


def test_an_offset_too_far_from_the_base_cannot_be_appended(fs: SimulatedFileSystem) -> None:
    index = make(fs)
    assert not index.can_append_offset(99)
    assert index.can_append_offset(100)
    assert index.can_append_offset(100 + 2**31 - 1)
    assert not index.can_append_offset(100 + 2**31)


@pytest.mark.parametrize("written_first", [False, True])
@pytest.mark.parametrize(
    ("offset", "left"),
    [(0, 0), (110, 0), (111, 1), (120, 1), (125, 2), (130, 2), (131, 3), (1_000, 3)],
)
def test_truncation_removes_entries_from_an_offset_on(
    fs: SimulatedFileSystem, offset: int, left: int, written_first: bool
) -> None:
    index = make(fs, entries=3)
    if written_first:
        index.flush()
    index.truncate_to(offset)
    assert index.entry_count == left
    assert index.last_offset == 100 + 10 * left
    index.append(500, 9_000)
    expected = [(100 + 10 * number, 1_000 * number) for number in range(1, left + 1)] + [(500, 9_000)]
    assert index.entries() == expected
    index.close()
    assert fs.read_file(PATH) == packed(*((offset - 100, position) for offset, position in expected))


def test_a_closed_index_is_opened_again_and_goes_on(fs: SimulatedFileSystem) -> None:
    make(fs, entries=3).close()
    index = OffsetIndex(fs, PATH, 100, 83)
    assert index.entry_count == 3
    assert index.last_offset == 130
    index.append(140, 4_000)
    assert index.entries() == [(110, 1_000), (120, 2_000), (130, 3_000), (140, 4_000)]
    index.close()
    assert fs.size_of(PATH) == 32


def test_an_index_that_is_only_read_is_not_written(fs: SimulatedFileSystem) -> None:
    make(fs, entries=3).close()
    changes = fs.change_count
    index = OffsetIndex(fs, PATH, 100, 83)
    index.lookup(115)
    index.flush()
    index.close()
    assert fs.change_count == changes


def test_a_missing_file_has_no_entries(fs: SimulatedFileSystem) -> None:
    index = OffsetIndex(fs, PATH, 100, 83)
    assert index.lookup(150) == (100, 0)
    assert not fs.exists(PATH)
    index.append(110, 1_000)
    index.close()
    assert fs.read_file(PATH) == packed((10, 1_000))


def test_an_index_beyond_a_lowered_limit_still_takes_its_last_entry(fs: SimulatedFileSystem) -> None:
    make(fs, entries=3).close()
    index = OffsetIndex(fs, PATH, 100, 8)
    assert index.is_full
    index.append(140, 4_000)
    index.close()
    assert fs.size_of(PATH) == 32


def test_reset_empties_it(fs: SimulatedFileSystem) -> None:
    index = make(fs, entries=3)
    index.lookup(115)
    index.reset()
    assert index.entries() == []
    index.append(101, 5)
    assert index.entries() == [(101, 5)]
    index.close()
    assert fs.read_file(PATH) == packed((1, 5))


def test_the_checksum_follows_what_is_appended_and_removed(fs: SimulatedFileSystem) -> None:
    index = make(fs, entries=3)
    assert index.digest() == FileDigest(24, crc32c(packed((10, 1_000), (20, 2_000), (30, 3_000))), 30, 3_000)
    index.truncate_to(121)
    index.append(140, 4_000)
    index.close()
    assert index.digest() == FileDigest(24, crc32c(fs.read_file(PATH)), 40, 4_000)
    again = OffsetIndex(fs, PATH, 100, 83)
    assert again.digest() is None
    assert again.entry_count == 3
    assert again.digest() == index.digest()
    index.reset()
    assert index.digest() == FileDigest(0, 0)


def test_a_file_that_is_not_what_was_listed_is_noticed_at_its_first_use(fs: SimulatedFileSystem) -> None:
    index = make(fs, entries=3)
    index.close()
    digest = index.digest()
    assert digest is not None
    fs.open(PATH, CREATE).pwrite(packed((11, 1_000)), 0)
    again = OffsetIndex(fs, PATH, 100, 83)
    again.expect(digest, is_current=True)
    assert (again.entry_count, again.last_offset) == (3, 130)
    with pytest.raises(CorruptIndex, match="is damaged"):
        again.position_for(125)
    again = OffsetIndex(fs, PATH, 100, 83)
    again.expect(digest, is_current=False)
    with pytest.raises(CorruptIndex, match="is damaged"):
        assert again.last_offset


def test_a_removed_index_is_not_written_again(fs: SimulatedFileSystem) -> None:
    index = make(fs, entries=2)
    index.remove()
    index.close()
    assert not fs.exists(PATH)


def test_many_indexes_share_a_bounded_memory(fs: SimulatedFileSystem) -> None:
    fs.index_memory.limit = 4_000
    indexes = []
    for number in range(10):
        index = OffsetIndex(fs, f"/{number}", 0, 10_000)
        index.create()
        for entry in range(1, 126):
            index.append(entry + number, entry)
        indexes.append(index)
    for _ in range(2):
        for number, index in enumerate(indexes):
            assert index.lookup(100 + number) == (100 + number, 100)
            assert fs.index_memory.total_cost <= 4_000
    for index in indexes:
        index.close()
    assert fs.index_memory.total_cost == 0


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_a_list(fs: SimulatedFileSystem, seed: int) -> None:
    """Random appends, truncations, trims, flushes, evictions and openings, against a plain list."""
    rng = Random(seed)
    index = OffsetIndex(fs, PATH, 100, 1 << 16)
    index.create()
    model: list[tuple[int, int]] = []
    for _ in range(300):
        action = rng.randrange(20)
        last_offset, last_position = model[-1] if model else (100, 0)
        if action < 10:
            for _ in range(rng.randrange(1, 60)):
                last_offset += rng.randrange(1, 1_000)
                last_position += rng.randrange(1, 100)
                index.append(last_offset, last_position)
                model.append((last_offset, last_position))
        elif action < 12:
            cut = rng.randrange(100, last_offset + 10)
            index.truncate_to(cut)
            model = [entry for entry in model if entry[0] < cut]
        elif action == 12:
            index.trim()
        elif action == 13:
            index.flush()
        elif action == 14:
            index.evict()
        elif action == 15:
            index.close()
            index = OffsetIndex(fs, PATH, 100, 1 << 16)
        else:
            wanted = rng.randrange(50, last_offset + 100)
            below = [entry for entry in model if entry[0] <= wanted]
            assert index.lookup(wanted) == (below[-1] if below else (100, 0))
        assert index.entry_count == len(model)
        assert index.last_offset == (model[-1][0] if model else 100)
    assert index.entries() == model
    index.close()
    assert fs.read_file(PATH) == packed(*((offset - 100, position) for offset, position in model))
