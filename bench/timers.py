"""Adding and cancelling timers while many others wait: the timing wheel compared with a heap.

A broker constantly adds a timer for a request and cancels it soon after. The wheel does both at a cost that does not
depend on the number of timers. A heap adds in O(log n) and cannot cancel: a cancelled timer stays in the heap and is
popped when it is due. This benchmark counts the pop as the cost of cancelling.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
from collections.abc import Callable
from typing import Final

from barnabas.broker.waiting.timing_wheel import Timer, TimerTask
from bench.table import Table, duration, ratio, verdict

WAITING: Final = (1_000, 10_000, 100_000, 1_000_000)
# From the longest wait of a fetch to the time after which an idle connection is closed.
DELAYS_MS: Final = (500, 600_000)
CHANGED: Final = 1_000
ROUNDS: Final = 100
GROWTH_MAX: Final = 2.0

Heap = list[tuple[int, int, TimerTask]]


def run() -> bool:
    rng = random.Random(1)
    table = Table(
        f"Timers, {CHANGED:,} added and cancelled while others wait; time for one",
        ("waiting", "wheel, add", "wheel, cancel", "heap, add", "heap, pop", "target", ""),
    )
    first: list[float] = []
    all_met = True
    for count in WAITING:
        gc.collect()
        gc.disable()
        try:
            wheel, heap = _wheel(count, rng), _heap(count, rng)
        finally:
            gc.enable()
        first = first or wheel
        growth = max(now / before for now, before in zip(wheel, first, strict=True))
        met = growth <= GROWTH_MAX
        all_met &= met
        table.add(
            f"{count:,}",
            *map(duration, [*wheel, *heap]),
            f"{ratio(growth)} of {WAITING[0]:,}, ≤ {GROWTH_MAX:g}×",
            verdict(met),
        )
    table.print()
    return all_met


def _wheel(waiting: int, rng: random.Random) -> list[float]:
    timer = Timer(0)
    for _ in range(waiting):
        timer.add(TimerTask(), rng.randint(*DELAYS_MS))
    tasks = [TimerTask() for _ in range(CHANGED)]

    def add(delays_ms: list[int]) -> None:
        for task, delay_ms in zip(tasks, delays_ms, strict=True):
            timer.add(task, delay_ms)

    def cancel() -> None:
        for task in tasks:
            task.cancel()

    return _best(add, cancel, rng)


def _heap(waiting: int, rng: random.Random) -> list[float]:
    heap: Heap = [(rng.randint(*DELAYS_MS), number, TimerTask()) for number in range(waiting)]
    heapq.heapify(heap)
    tasks = [TimerTask() for _ in range(CHANGED)]
    sequence = waiting

    def add(delays_ms: list[int]) -> None:
        nonlocal sequence
        for task, delay_ms in zip(tasks, delays_ms, strict=True):
            sequence += 1
            heapq.heappush(heap, (delay_ms, sequence, task))

    def pop() -> None:
        for _ in range(CHANGED):
            heapq.heappop(heap)

    return _best(add, pop, rng)


def _best(add: Callable[[list[int]], None], remove: Callable[[], None], rng: random.Random) -> list[float]:
    """Seconds for one timer to be added and to be removed, each the best of all rounds."""
    spent = []
    for _ in range(ROUNDS):
        delays_ms = [rng.randint(*DELAYS_MS) for _ in range(CHANGED)]
        start = time.perf_counter()
        add(delays_ms)
        between = time.perf_counter()
        remove()
        spent.append((between - start, time.perf_counter() - between))
    return [min(each) / CHANGED for each in zip(*spent, strict=True)]
