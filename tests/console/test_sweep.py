"""The order of a search: which hits count, and when it ends."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.console.search.chunks import Bounds
from barnabas.console.search.pieces import Piece
from barnabas.console.search.sweep import InOrder, Sweep, Task

PIECE_RECORDS = 10


def piece(partition: int, number: int) -> Piece:
    start_offset = number * PIECE_RECORDS
    bounds = Bounds(
        start_offset=start_offset, end_offset=start_offset + PIECE_RECORDS, start_ms=0, end_ms=10**9
    )
    return Piece(partition=partition, bounds=bounds, size_bytes=1)


def hit(partition: int, offset: int, timestamp_ms: int) -> dict[str, Any]:
    return {"partition": partition, "offset": offset, "timestamp_ms": timestamp_ms}


def run(
    times: dict[int, list[int]], hits: set[tuple[int, int]], hits_max: int, order: str, seed: int
) -> tuple[list[tuple[int, int]], Sweep, int]:
    """Searches with three processes in a random order; returns the hits that were taken, and the pieces."""
    is_oldest_first = order == "oldest"
    pieces = []
    for partition, of_partition in times.items():
        cut = [piece(partition, number) for number in range(len(of_partition) // PIECE_RECORDS)]
        pieces += cut if is_oldest_first else cut[::-1]
    sweep = Sweep(pieces, hits_max, is_oldest_first=is_oldest_first)
    chance = random.Random(seed)
    running: list[Task] = []
    searched = 0
    taken: list[dict[str, Any]] = []
    while not sweep.is_enough:
        while len(running) < 3 and (task := sweep.next_task()) is not None:
            running.append(task)
        task = running.pop(chance.randrange(len(running)))
        searched += 1
        partition, bounds = task.piece.partition, task.piece.bounds
        offsets = range(bounds.start_offset, bounds.end_offset)
        found = [each for each in offsets if (partition, each) in hits]
        for offset in (found if is_oldest_first else found[::-1])[:hits_max]:
            sweep.add(hit(partition, offset, times[partition][offset]))
        if chance.random() < 0.2:
            taken += sweep.take()
        edge_ms = times[partition][offsets[-1] if is_oldest_first else offsets[0]]
        sweep.finish(task, edge_ms, is_cut=len(found) >= hits_max)
    taken += sweep.take()
    return [(each["partition"], each["offset"]) for each in taken], sweep, searched


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("seed", range(20))
def test_the_hits_that_count(order: str, seed: int) -> None:
    """However partitions differ in length and time, the newest (or oldest) hits are among those that were taken."""
    chance = random.Random(seed)
    times = {}
    for partition in range(4):
        count = PIECE_RECORDS * chance.randint(1, 30)
        begin = chance.randint(0, 1000)
        step = chance.randint(1, 50)
        times[partition] = [begin + number * step for number in range(count)]
    everything = [(partition, offset) for partition, found in times.items() for offset in range(len(found))]
    hits = {each for each in everything if chance.random() < 0.2}
    hits_max = chance.choice([1, 5, 50, 100_000])
    taken, sweep, searched = run(times, hits, hits_max, order, seed)
    sign = 1 if order == "oldest" else -1
    ordered = sorted(hits, key=lambda each: (sign * times[each[0]][each[1]], sign * each[1]))
    wanted = {times[partition][offset] for partition, offset in ordered[:hits_max]}
    assert wanted <= {times[partition][offset] for partition, offset in taken}
    assert sweep.hit_count == min(hits_max, len(hits))
    assert sweep.is_limited == (len(hits) > hits_max)
    if hits_max == 1:
        assert searched < sum(len(each) for each in times.values()) // PIECE_RECORDS or len(everything) < 100


def test_a_search_without_pieces_is_over() -> None:
    assert Sweep([], 10, is_oldest_first=False).is_enough
    assert InOrder([], 10).is_enough


def test_pieces_in_order() -> None:
    order = InOrder([piece(0, 0), piece(0, 1)], 2)
    first = order.next_task()
    assert first is not None
    assert list(order.add(hit(0, 1, 0))) == [hit(0, 1, 0)]
    assert list(order.add(hit(0, 2, 0))) == [hit(0, 2, 0)]
    assert not order.is_limited
    assert list(order.add(hit(0, 3, 0))) == []
    assert order.is_limited
    assert order.is_enough
    assert order.hit_count == 2
