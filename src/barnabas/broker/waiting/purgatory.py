"""Requests that wait because they cannot be answered yet.

An operation is watched under keys, such as a partition. Code that changes the state behind a key calls
`check_and_complete(key)`; the operations under the key then check whether they can be answered now. Operations that
wait too long expire. However an operation ends, it ends exactly once.

A completed operation stays in the lists of its other keys until one of them is checked, or until there are
`PURGE_INTERVAL` completed operations and all lists are swept: completing stays cheap for an operation with a thousand
keys.

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
    """Subclasses override `try_complete`, `on_complete` and, where time-outs are counted, `on_expiration`."""

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
        """Looks at the state and calls `force_complete` if the operation can end now."""
        raise AssertionError("an operation says when it can complete")

    def on_complete(self) -> None:
        """Answers. Called exactly once, whether by an event or by the time-out."""
        raise AssertionError("an operation says how it completes")

    def on_expiration(self) -> None:
        """Called after `on_complete` when the time-out has ended the operation."""

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
    """The operations of one kind that wait, by key. The timer may be shared with other purgatories."""

    def __init__(self, timer: Timer, *, purge_interval: int = PURGE_INTERVAL) -> None:
        self._timer = timer
        self._purge_interval = purge_interval
        self._watchers: dict[Hashable, list[DelayedOperation]] = {}
        self._watched = 0
        self._next_purge = purge_interval
        # Operations that have not ended, and under how many keys they wait in all. The lists may hold more.
        self.waiting = 0
        self.waiting_keys = 0

    @property
    def watched(self) -> int:
        """How many entries all lists hold, those of completed operations included."""
        return self._watched

    def watches(self, key: Hashable) -> bool:
        """Whether an operation may be waiting under the key."""
        return self._watched > 0 and key in self._watchers

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """True if the operation has ended here; otherwise it is watched under the keys and expires by its time-out."""
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
        # The event may have come while the keys were gathered (a callback of try_complete appended, say).
        if operation.try_complete():
            return True
        self._timer.add(operation, operation.timeout_ms)
        if self._watched >= self._next_purge:
            self.purge()
            # The remaining operations still wait: sweep again only after as many more have come.
            self._next_purge = self._watched + max(self._watched, self._purge_interval)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Ends the operations under the key that can end now; returns how many did."""
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
            # Answering may have let a client's next request in, which now waits under the same key.
            added_meanwhile = self._watchers.get(key)
            if added_meanwhile is not None:
                waiting.extend(added_meanwhile)
            self._watchers[key] = waiting
        return completed

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Takes the operations under a key out of its list, for the caller to end (a partition that is gone)."""
        watchers = self._watchers.pop(key, [])
        self._watched -= len(watchers)
        return [operation for operation in watchers if not operation.is_completed]

    def purge(self) -> int:
        """Drops completed operations from all lists; returns how many entries went."""
        before = self._watched
        kept: dict[Hashable, list[DelayedOperation]] = {}
        for key, watchers in self._watchers.items():
            waiting = [operation for operation in watchers if not operation.is_completed]
            if waiting:
                kept[key] = waiting
        self._watchers = kept
        self._watched = sum(map(len, kept.values()))
        return before - self._watched
