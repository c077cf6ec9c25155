"""Decides which piece of a search comes next, which hits count, and when there are enough.

A search for the newest hits goes back in time through all partitions at once, and one for the oldest hits goes on in
time. Within a partition the order is that of the offsets; partitions are compared by timestamps. The search ends when
no piece that is left can have a hit that is newer (or older) than those that count.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from barnabas.console.search.pieces import Piece

Hit = dict[str, Any]


@dataclass(slots=True, eq=False)
class Line:
    """A partition: its pieces that wait, those that were given out, and the time up to which all was searched."""

    waiting: deque[Piece]
    begun: deque[Task] = field(default_factory=deque)
    frontier: float = float("inf")
    given: int = 0

    @property
    def is_done(self) -> bool:
        return not self.waiting and not self.begun


@dataclass(slots=True, eq=False)
class Task:
    """A piece that a process searches."""

    piece: Piece
    line: Line
    edge: float | None = None
    is_finished: bool = False
    is_cut: bool = False


class Order(Protocol):
    """What a search asks while it runs."""

    is_enough: bool
    is_limited: bool

    @property
    def hit_count(self) -> int: ...

    def next_task(self) -> Task | None: ...

    def add(self, hit: Hit) -> Sequence[Hit]:
        """Takes a hit, and returns those to send now."""

    def take(self) -> Sequence[Hit]:
        """The hits that count and were not sent yet."""

    def finish(self, task: Task, edge_ms: int | None, *, is_cut: bool) -> None:
        """A piece was searched, up to the time `edge_ms`; it was cut if it has had as many hits as count at all."""


class Sweep:
    """All partitions, evenly in time, for any number of processes.

    A hit that was sent early may turn out not to count. `take` then returns more hits than the limit in total, and the
    receiver keeps the newest (or oldest) of them.
    """

    def __init__(self, pieces: Iterable[Piece], hits_max: int, *, is_oldest_first: bool) -> None:
        """Pieces of one partition come in the order in which they are searched."""
        self._sign = -1 if is_oldest_first else 1
        self._hits_max = hits_max
        self._lines: dict[int, Line] = {}
        for piece in pieces:
            self._lines.setdefault(piece.partition, Line(deque())).waiting.append(piece)
        # The hits that count, the worst one first; None in the place of one that was sent.
        self._best: list[tuple[tuple[int, int, int], Hit | None]] = []
        self.is_limited = False
        self.is_enough = not self._lines

    @property
    def hit_count(self) -> int:
        return len(self._best)

    def next_task(self) -> Task | None:
        lines = [each for each in self._lines.values() if each.waiting]
        if not lines:
            return None
        line = max(lines, key=lambda each: (each.frontier, -each.given))
        line.given += 1
        task = Task(line.waiting.popleft(), line)
        line.begun.append(task)
        return task

    def add(self, hit: Hit) -> Sequence[Hit]:
        key = (self._sign * hit["timestamp_ms"], self._sign * hit["offset"], hit["partition"])
        if len(self._best) < self._hits_max:
            heapq.heappush(self._best, (key, hit))
        else:
            self.is_limited = True
            if key > self._best[0][0]:
                heapq.heapreplace(self._best, (key, hit))
        return ()

    def take(self) -> Sequence[Hit]:
        new = sorted(((key, hit) for key, hit in self._best if hit is not None), key=lambda each: each[0])
        if new:
            # Keys stay in their places, so this is still a heap.
            self._best = [(key, None) for key, _ in self._best]
        return [hit for _, hit in reversed(new)]

    def finish(self, task: Task, edge_ms: int | None, *, is_cut: bool) -> None:
        task.is_finished, task.is_cut = True, is_cut
        task.edge = None if edge_ms is None else self._sign * edge_ms
        line = task.line
        while line.begun and line.begun[0].is_finished:
            first = line.begun.popleft()
            if first.edge is not None:
                line.frontier = min(line.frontier, first.edge)
            if first.is_cut:
                # What follows in this partition cannot count.
                self.is_limited = True
                line.waiting.clear()
                line.begun.clear()
        frontiers = [each.frontier for each in self._lines.values() if not each.is_done]
        if not frontiers:
            self.is_enough = True
        elif len(self._best) >= self._hits_max and self._best[0][0][0] >= max(frontiers):
            self.is_enough = self.is_limited = True


class InOrder:
    """One piece after the other, for one process. All hits count, up to a number of them."""

    def __init__(self, pieces: Iterable[Piece], hits_max: int) -> None:
        self._line = Line(deque(pieces))
        self._hits_max = hits_max
        self._hit_count = 0
        self.is_limited = False
        self.is_enough = not self._line.waiting

    @property
    def hit_count(self) -> int:
        return self._hit_count

    def next_task(self) -> Task | None:
        return Task(self._line.waiting.popleft(), self._line) if self._line.waiting else None

    def add(self, hit: Hit) -> Sequence[Hit]:
        if self._hit_count == self._hits_max:
            self.is_enough = self.is_limited = True
            return ()
        self._hit_count += 1
        return (hit,)

    def take(self) -> Sequence[Hit]:
        return ()

    def finish(self, task: Task, edge_ms: int | None, *, is_cut: bool) -> None:
        """Nothing depends on it."""
