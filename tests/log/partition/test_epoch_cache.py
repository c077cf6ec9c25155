from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable

import pytest

from barnabas.log.checkpoints import read_epochs, write_epochs
from barnabas.log.partition.epoch_cache import EpochCache, EpochEndOffset
from barnabas.model import LeaderEpoch, Offset
from tests.log.simulated import SimulatedFileSystem


class Epochs:
    """A cache on a file; what it leaves for later waits until `run_later`."""

    def __init__(self, *entries: tuple[int, int]) -> None:
        self.path = "/data/topic-0/leader-epoch-checkpoint"
        self.fs = SimulatedFileSystem()
        self.fs.make_dirs("/data/topic-0")
        self.later: list[Callable[[], None]] = []
        if entries:
            write_epochs(self.fs, self.path, entries)
        self.cache = EpochCache(self.fs, self.path, lambda name, action: self.later.append(action))

    def on_disk(self) -> list[tuple[int, int]]:
        return [(epoch, start_offset) for epoch, start_offset in read_epochs(self.fs, self.path)]

    def run_later(self) -> None:
        while self.later:
            self.later.pop()()


def pairs(cache: EpochCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in cache.entries()]


def end(epoch: int, offset: int) -> EpochEndOffset:
    return EpochEndOffset(LeaderEpoch(epoch), Offset(offset))


def test_a_new_epoch_is_written_at_once_and_a_known_one_changes_nothing() -> None:
    on = Epochs()
    on.cache.assign(2, 10)
    assert on.on_disk() == [(2, 10)]
    on.cache.assign(2, 20)
    on.cache.assign(3, 30)
    assert on.on_disk() == [(2, 10), (3, 30)]
    assert (on.cache.latest_epoch, on.cache.latest_start_offset) == (3, 30)
    assert not on.later


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
    on = Epochs((1, 10), (2, 20), (3, 30))
    on.cache.assign(*new)
    assert pairs(on.cache) == left
    assert on.on_disk() == left


def test_where_an_epoch_ends() -> None:
    cache = Epochs((2, 10), (4, 20), (7, 30)).cache
    assert cache.end_offset_for(-1, 40) is None
    assert cache.end_offset_for(7, 40) == end(7, 40)
    assert cache.end_offset_for(8, 40) is None
    assert cache.end_offset_for(4, 40) == end(4, 30)
    assert cache.end_offset_for(5, 40) == end(4, 30)
    assert cache.end_offset_for(3, 40) == end(2, 20)
    assert cache.end_offset_for(1, 40) == end(1, 10)
    cache.clear()
    assert cache.end_offset_for(0, 40) is None


def test_which_epoch_an_offset_belongs_to() -> None:
    cache = Epochs((2, 10), (4, 20)).cache
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [None, 2, 2, 4, 4]
    assert [cache.previous_epoch(epoch) for epoch in (2, 3, 4, 5)] == [None, 2, 2, 4]
    earliest = cache.earliest()
    assert earliest is not None
    assert earliest.start_offset == 10
    cache.clear()
    assert cache.earliest() is None


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [(31, 3), (30, 2), (21, 2), (20, 1), (10, 0), (0, 0)],
)
def test_truncation_from_the_end_is_written_later(end_offset: int, left: int) -> None:
    entries = [(1, 10), (2, 20), (3, 30)]
    on = Epochs(*entries)
    on.cache.truncate_from_end(end_offset)
    assert pairs(on.cache) == entries[:left]
    assert on.cache.latest_epoch == (entries[left - 1][0] if left else -1)
    assert on.on_disk() == entries
    on.run_later()
    assert on.on_disk() == entries[:left]


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
def test_truncation_from_the_start_is_written_later(start_offset: int, left: list[tuple[int, int]]) -> None:
    on = Epochs((1, 10), (2, 20), (3, 30))
    on.cache.truncate_from_start(start_offset)
    assert pairs(on.cache) == left
    assert (on.cache.latest_epoch, on.cache.latest_start_offset) == left[-1]
    on.run_later()
    assert on.on_disk() == left


def test_what_is_left_for_later_does_not_mind_that_the_directory_has_gone() -> None:
    on = Epochs((1, 10), (2, 20))
    on.cache.move_to("/data/gone/leader-epoch-checkpoint")
    on.cache.truncate_from_end(15)
    on.run_later()
    assert on.on_disk() == [(1, 10), (2, 20)]


def test_clearing_is_written() -> None:
    on = Epochs((1, 10))
    on.cache.clear()
    assert on.on_disk() == []
    assert len(on.cache) == 0


def test_epochs_and_offsets_rise_together_whatever_happens() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        on = Epochs()
        on.cache.clear()
        for _ in range(30):
            action = rng.randrange(4)
            offset = rng.randrange(100)
            if action <= 1:
                on.cache.assign(rng.randrange(20), offset)
            elif action == 2:
                on.cache.truncate_from_end(offset)
            else:
                on.cache.truncate_from_start(offset)
            entries = pairs(on.cache)
            for before, after in itertools.pairwise(entries):
                assert before[0] < after[0], seed
                assert before[1] < after[1], seed
            assert (on.cache.latest_epoch, on.cache.latest_start_offset) == (
                entries[-1] if entries else (-1, -1)
            )
        on.run_later()
        assert on.on_disk() == pairs(on.cache)


def test_an_epoch_that_begins_again_where_the_log_ends_writes_nothing() -> None:
    on = Epochs((0, 0), (3, 50))
    on.cache.forget_from_end(50)
    assert pairs(on.cache) == [(0, 0)]
    assert not on.later
    on.fs.inject("/data", errno.EIO)
    on.cache.assign(3, 50)
    assert pairs(on.cache) == [(0, 0), (3, 50)]


def test_an_epoch_that_was_forgotten_is_gone_from_the_file_before_other_records_take_its_place() -> None:
    on = Epochs((0, 0), (3, 50))
    on.cache.forget_from_end(50)
    assert on.on_disk() == [(0, 0), (3, 50)]
    on.cache.assign(0, 50)
    assert on.on_disk() == [(0, 0)]
    on.cache.assign(0, 51)
    assert on.on_disk() == [(0, 0)]
