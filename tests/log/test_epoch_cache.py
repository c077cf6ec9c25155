from __future__ import annotations

import itertools
import random

import pytest

from barnabas.log.epoch_cache import EpochCache, EpochEndOffset, EpochEntry
from barnabas.model import LeaderEpoch, Offset


class Disk:
    """What a cache has written, and how often it asked to be written later."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] | None = None
        self.later = 0

    def write(self, entries: list[EpochEntry]) -> None:
        self.written = [(entry.epoch, entry.start_offset) for entry in entries]

    def write_later(self) -> None:
        self.later += 1


def cache_of(*entries: tuple[int, int], disk: Disk | None = None) -> EpochCache:
    disk = disk or Disk()
    return EpochCache(entries, write=disk.write, write_later=disk.write_later)


def pairs(cache: EpochCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in cache.entries()]


def end(epoch: int, offset: int) -> EpochEndOffset:
    return EpochEndOffset(LeaderEpoch(epoch), Offset(offset))


def test_a_new_epoch_is_written_at_once_and_a_known_one_not_at_all() -> None:
    disk = Disk()
    cache = cache_of(disk=disk)
    cache.assign(2, 10)
    assert disk.written == [(2, 10)]
    disk.written = None
    cache.assign(2, 20)
    assert disk.written is None
    cache.assign(3, 30)
    assert disk.written == [(2, 10), (3, 30)]
    assert (cache.latest_epoch, cache.latest_start_offset) == (3, 30)


@pytest.mark.parametrize(
    ("new", "left"),
    [
        ((2, 15), [(1, 10), (2, 15)]),
        ((5, 25), [(1, 10), (2, 20), (5, 25)]),
        ((5, 5), [(5, 5)]),
        ((0, 40), [(0, 40)]),
        ((3, 30), [(1, 10), (2, 20), (3, 30)]),
        ((4, 30), [(1, 10), (2, 20), (4, 30)]),
    ],
)
def test_entries_that_a_new_one_contradicts_go(new: tuple[int, int], left: list[tuple[int, int]]) -> None:
    cache = cache_of((1, 10), (2, 20), (3, 30))
    cache.assign(*new)
    assert pairs(cache) == left


def test_where_an_epoch_ends() -> None:
    cache = cache_of((2, 10), (4, 20), (7, 30))
    assert cache.end_offset_for(-1, 40) is None
    assert cache.end_offset_for(7, 40) == end(7, 40)
    assert cache.end_offset_for(8, 40) is None
    assert cache.end_offset_for(4, 40) == end(4, 30)
    assert cache.end_offset_for(5, 40) == end(4, 30)
    assert cache.end_offset_for(3, 40) == end(2, 20)
    assert cache.end_offset_for(1, 40) == end(1, 10)
    assert cache_of().end_offset_for(0, 40) is None


def test_which_epoch_an_offset_belongs_to() -> None:
    cache = cache_of((2, 10), (4, 20))
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [None, 2, 2, 4, 4]
    assert [cache.previous_epoch(epoch) for epoch in (2, 3, 4, 5)] == [None, 2, 2, 4]
    earliest = cache.earliest()
    assert earliest is not None
    assert earliest.start_offset == 10
    assert cache_of().earliest() is None


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [(31, 3), (30, 2), (21, 2), (20, 1), (10, 0), (0, 0)],
)
def test_truncation_from_the_end(end_offset: int, left: int) -> None:
    disk = Disk()
    entries = [(1, 10), (2, 20), (3, 30)]
    cache = cache_of(*entries, disk=disk)
    cache.truncate_from_end(end_offset)
    assert pairs(cache) == entries[:left]
    assert cache.latest_epoch == (entries[left - 1][0] if left else -1)
    assert disk.later == (left < 3)


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (9, [(1, 10), (2, 20), (3, 30)]),
        (10, [(1, 10), (2, 20), (3, 30)]),
        (15, [(1, 15), (2, 20), (3, 30)]),
        (20, [(2, 20), (3, 30)]),
        (25, [(2, 25), (3, 30)]),
        (99, [(3, 99)]),
    ],
)
def test_truncation_from_the_start(start_offset: int, left: list[tuple[int, int]]) -> None:
    cache = cache_of((1, 10), (2, 20), (3, 30))
    cache.truncate_from_start(start_offset)
    assert pairs(cache) == left
    assert (cache.latest_epoch, cache.latest_start_offset) == left[-1]


def test_clearing_is_written() -> None:
    disk = Disk()
    cache = cache_of((1, 10), disk=disk)
    cache.clear()
    assert disk.written == []
    assert len(cache) == 0


def test_epochs_and_offsets_rise_together_whatever_happens() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        cache = cache_of()
        for _ in range(60):
            action = rng.randrange(4)
            offset = rng.randrange(100)
            if action <= 1:
                cache.assign(rng.randrange(20), offset)
            elif action == 2:
                cache.truncate_from_end(offset)
            else:
                cache.truncate_from_start(offset)
            entries = pairs(cache)
            assert entries == sorted(set(entries)), seed
            assert all(a[1] < b[1] and a[0] < b[0] for a, b in itertools.pairwise(entries)), seed
            assert (cache.latest_epoch, cache.latest_start_offset) == (entries[-1] if entries else (-1, -1))
