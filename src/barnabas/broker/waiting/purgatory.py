"""Delayed operations: requests that cannot be answered yet.

An operation is watched under keys (a partition, for example). Code that changes the state behind a key calls
`check_and_complete(key)`, and the operations under the key check whether they can complete. Operations that wait too
long expire. However an operation ends, it ends exactly once.

A completed operation stays in the lists of its other keys until one of them is checked, or until `PURGE_INTERVAL`
completed ones have accumulated and all lists are swept: completing an operation with a thousand keys stays cheap.

Everything here happens on one thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from mypy_extensions import mypyc_attr

from barnabas.broker.waiting.timing_wheel import Timer, TimerTask

PURGE_INTERVAL: Final = 1_000


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation(TimerTask):
    """Subclasses override `try_complete`, `on_complete` and, to count timeouts, `on_expiration`."""

    __slots__ = ("is_completed", "purgatory", "timeout_ms", "watched_keys")

    is_completed: bool
    timeout_ms: int
    # Where it waits, and under how many keys.
    purgatory: Purgatory | None
    watched_keys: int

    def __init__(self, timeout_ms: int) -> None:
        super().__init__()
        self.timeout_ms = timeout_ms
        self.is_completed = False
        self.purgatory = None
        self.watched_keys = 0

    def try_complete(self) -> bool:
        """Checks the state, and calls `force_complete` if the operation can complete now."""
        raise AssertionError("an operation says when it can complete")

    def on_complete(self) -> None:
        """Answers the request. Called exactly once, by an event or by the timeout."""
        raise AssertionError("an operation says how it completes")

    def on_expiration(self) -> None:
        """Called after `on_complete` if the timeout has ended the operation."""

    def force_complete(self) -> bool:
        """Ends the operation. False if it has ended before."""
        if self.is_completed:
            return False
        self.is_completed = True
        self.cancel()
        purgatory = self.purgatory
        if purgatory is not None:
            purgatory.waiting -= 1
            purgatory.waiting_keys -= self.watched_keys
        self.on_complete()
        return True

    def expire(self) -> None:
        if self.force_complete():
            self.on_expiration()


@mypyc_attr(allow_interpreted_subclasses=True)
class Purgatory:
    """The delayed operations of one type, by key. Several purgatories may share a timer."""

    def __init__(self, timer: Timer, *, purge_interval: int = PURGE_INTERVAL) -> None:
        self._timer = timer
        self._purge_interval = purge_interval
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self._watched = 0
        self._next_purge = purge_interval
        # Operations that have not ended, and the total number of their keys. The lists may hold more.
        self.waiting = 0
        self.waiting_keys = 0

    @property
    def watched(self) -> int:
        """The number of entries in all lists, with those of completed operations."""
        return self._watched

    def watches(self, key: Hashable) -> bool:
        """Whether an operation may be waiting under the key."""
        return self._watched > 0 and key in self._watchers

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """True if the operation completes at once. Otherwise it is watched under the keys until its timeout."""
        if operation.try_complete():
            return True
        count = 0
        for key in keys:
            self._watchers.setdefault(key, []).append(operation)
            count += 1
        self._watched += count
        operation.purgatory = self
        operation.watched_keys = count
        self.waiting += 1
        self.waiting_keys += count
        # The event may have happened in the meantime (a callback of try_complete may append records, for example).
        if operation.try_complete():
            return True
        self._timer.add(operation, operation.timeout_ms)
        if self._watched >= self._next_purge:
            self.purge()
            # The rest has not completed: sweep again only when as many entries have been added.
            self._next_purge = self._watched + max(self._watched, self._purge_interval)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Completes the operations under the key that can complete now; returns their number."""
        watchers = self._watchers.pop(key, None)
        if watchers is None:
            return 0
        completed = 0
        waiting = []
        for operation in watchers:
            if operation.is_completed:
                continue
            if operation.try_complete():
                completed += 1
            else:
                waiting.append(operation)
        self._watched -= len(watchers) - len(waiting)
        if waiting:
            # An answer may have started a client's next request, which now waits under the same key.
            added_meanwhile = self._watchers.get(key)
            if added_meanwhile is not None:
                waiting.extend(added_meanwhile)
            self._watchers[key] = waiting
        return completed

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Removes the operations under a key (of a deleted partition). The caller completes them."""
        watchers = self._watchers.pop(key, [])
        self._watched -= len(watchers)
        return [operation for operation in watchers if not operation.is_completed]

    def purge(self) -> int:
        """Removes completed operations from all lists; returns the number of removed entries."""
        before = self._watched
        kept: dict[Hashable, list[DelayedOperation]] = {}
        for key, watchers in self._watchers.items():
            waiting = [operation for operation in watchers if not operation.is_completed]
            if waiting:
                kept[key] = waiting
        self._watchers = kept
        self._watched = sum(map(len, kept.values()))
        return before - self._watched
