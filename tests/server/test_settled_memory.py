"""Searches for garbage leave out the objects of partitions that were created since the broker started."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from barnabas.server import settled_memory
from barnabas.server.settled_memory import NEW_LOGS, SettledMemory


class Partitions:
    def __init__(self) -> None:
        self.objects: list[list[int]] = []

    def create(self, count: int) -> None:
        self.objects += [[number] for number in range(count)]

    def count(self) -> int:
        return len(self.objects)

    def searched(self) -> int:
        """How many of them a full search looks at."""
        ids = {id(each) for each in self.objects}
        return sum(id(each) in ids for each in gc.get_objects())


@pytest.fixture
def partitions() -> Iterator[Partitions]:
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    found = Partitions()
    found.create(10)
    SettledMemory(found.count).settle()
    # The test alone says when there is a search.
    gc.disable()
    yield found
    gc.enable()
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks


def test_partitions_at_the_start(partitions: Partitions) -> None:
    assert partitions.searched() == 0
    assert gc.get_threshold() == settled_memory.GARBAGE_THRESHOLDS


def test_many_new_partitions(partitions: Partitions) -> None:
    for _ in range(3):
        partitions.create(NEW_LOGS)
        assert partitions.searched() == NEW_LOGS
        gc.collect(0)
        assert partitions.searched() == NEW_LOGS
        gc.collect(1)
        assert partitions.searched() == 0


def test_few_new_partitions(partitions: Partitions) -> None:
    """All that exists at that moment stays, so that moment is rare."""
    partitions.create(NEW_LOGS - 1)
    gc.collect(1)
    assert partitions.searched() == NEW_LOGS - 1
    partitions.create(1)
    gc.collect(1)
    assert partitions.searched() == 0


def test_partitions_in_place_of_deleted_ones(partitions: Partitions) -> None:
    partitions.create(2 * NEW_LOGS)
    gc.collect(1)
    del partitions.objects[10:]
    gc.collect(1)
    partitions.create(NEW_LOGS)
    gc.collect(1)
    assert partitions.searched() == 0
