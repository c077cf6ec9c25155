"""A hierarchical timing wheel: inserting and cancelling a timer cost the same however many there are.

    level 1   tick    1 ms × 20 buckets   covers the next     20 ms
    level 2   tick   20 ms × 20 buckets   covers the next    400 ms
    level 3   tick  400 ms × 20 buckets   covers the next  8,000 ms     and so on, made when first needed

A bucket is a ring of tasks around a sentinel. A task sits in the finest wheel that reaches its time; when a bucket of
a coarse wheel is due, its tasks move to finer ones, until the bucket of a 1 ms wheel is due and they expire. Time
is not ticked: a heap holds the due time of each bucket that is in use, at most one entry a bucket, so an idle timer
costs nothing and `next_due_ms` tells the event loop how long it may sleep.

Everything here happens on one thread.
"""

from __future__ import annotations

import heapq
from typing import Final

from mypy_extensions import mypyc_attr

TICK_MS: Final = 1
WHEEL_SIZE: Final = 20


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTask:
    """An action at a time, unless it is cancelled before. Subclasses define it in `expire`."""

    __slots__ = ("_next", "_previous", "due_ms")

    _next: TimerTask | None
    _previous: TimerTask | None
    due_ms: int

    def __init__(self) -> None:
        self._next = None
        self._previous = None
        self.due_ms = 0

    def expire(self) -> None:
        raise AssertionError("a task that is put into a timer overrides expire()")

    @property
    def is_scheduled(self) -> bool:
        return self._next is not None

    def cancel(self) -> bool:
        """Removes the task from its timer. False if it has none: it was never added, has expired or was cancelled."""
        following = self._next
        if following is None:
            return False
        preceding = self._previous
        assert preceding is not None
        preceding._next = following
        following._previous = preceding
        self._next = None
        self._previous = None
        return True


class Bucket(TimerTask):
    """The sentinel of a ring of tasks; `due_ms` is the start of the bucket's time span, -1 while it is unused."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self.due_ms = -1
        self._next = self
        self._previous = self

    def add(self, task: TimerTask) -> None:
        last = self._previous
        assert last is not None
        last._next = task
        task._previous = last
        task._next = self
        self._previous = task

    def pop(self) -> TimerTask | None:
        first = self._next
        assert first is not None
        if first is self:
            return None
        first.cancel()
        return first


class Wheel:
    """One level. It holds tasks from one tick after `current_ms` until `current_ms` + `span_ms`, not included."""

    __slots__ = ("buckets", "current_ms", "span_ms", "tick_ms")

    buckets: list[Bucket]
    current_ms: int
    span_ms: int
    tick_ms: int

    def __init__(self, tick_ms: int, wheel_size: int, now_ms: int) -> None:
        self.tick_ms = tick_ms
        self.span_ms = tick_ms * wheel_size
        self.current_ms = now_ms - now_ms % tick_ms
        self.buckets = [Bucket() for _ in range(wheel_size)]


@mypyc_attr(allow_interpreted_subclasses=True)
class Timer:
    """Runs tasks when they are due. The owner calls `advance` at `next_due_ms`."""

    __slots__ = ("_due", "_due_bucket", "_sequence", "_wheel_size", "_wheels", "now_ms")

    _due: list[tuple[int, int, Bucket]]
    _due_bucket: Bucket
    _sequence: int
    _wheel_size: int
    _wheels: list[Wheel]
    now_ms: int

    def __init__(self, now_ms: int, *, tick_ms: int = TICK_MS, wheel_size: int = WHEEL_SIZE) -> None:
        assert tick_ms > 0
        assert wheel_size > 1
        self.now_ms = now_ms
        self._wheel_size = wheel_size
        self._wheels = [Wheel(tick_ms, wheel_size, now_ms)]
        # Tasks that are due, beyond the limit of the last call of `advance`.
        self._due_bucket = Bucket()
        self._due = []
        # Two buckets of different levels may be due at the same time; the number keeps the heap from comparing them.
        self._sequence = 0

    def add(self, task: TimerTask, delay_ms: int) -> None:
        """A delay of zero or less expires at the next `advance`, never within this call."""
        assert not task.is_scheduled
        task.due_ms = self.now_ms + delay_ms
        self._place(task)

    def next_due_ms(self) -> int | None:
        """When `advance` has something to do; None while no task waits. It may be early, never late."""
        if self._due_bucket._next is not self._due_bucket:
            return self.now_ms
        return self._due[0][0] if self._due else None

    def advance(self, now_ms: int, limit: int = 1_000) -> int:
        """Moves the time to `now_ms` and expires at most `limit` tasks; the rest are due at once.

        A time before the last one counts as the last one. Returns the number of expired tasks.
        """
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        elapsed: list[TimerTask] = []
        while self._due and self._due[0][0] <= self.now_ms:
            _, _, bucket = heapq.heappop(self._due)
            bucket.due_ms = -1
            task = bucket.pop()
            while task is not None:
                elapsed.append(task)
                task = bucket.pop()
        for wheel in self._wheels:
            wheel.current_ms = self.now_ms - self.now_ms % wheel.tick_ms
        for task in elapsed:
            self._place(task)
        expired = 0
        while expired < limit:
            task = self._due_bucket.pop()
            if task is None:
                break
            expired += 1
            task.expire()
        return expired

    def _place(self, task: TimerTask) -> None:
        due_ms = task.due_ms
        level = 0
        wheel = self._wheels[0]
        if due_ms < wheel.current_ms + wheel.tick_ms:
            self._due_bucket.add(task)
            return
        while due_ms >= wheel.current_ms + wheel.span_ms:
            level += 1
            if level == len(self._wheels):
                self._wheels.append(Wheel(wheel.span_ms, self._wheel_size, wheel.current_ms))
            wheel = self._wheels[level]
        bucket_due_ms = due_ms - due_ms % wheel.tick_ms
        bucket = wheel.buckets[due_ms // wheel.tick_ms % self._wheel_size]
        bucket.add(task)
        if bucket.due_ms != bucket_due_ms:
            # A bucket is due again only a whole turn later: its former tasks have been removed by then.
            bucket.due_ms = bucket_due_ms
            self._sequence += 1
            heapq.heappush(self._due, (bucket_due_ms, self._sequence, bucket))
