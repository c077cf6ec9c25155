"""The requests that wait for a partition to change: produces, fetches and deletions of records.

A partition notes each change here, and every waiting request under its key looks whether it can be answered now. This
is the one notification of a change: appends, watermarks, roles and failures of disks all come through it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.broker.waiting.purgatory import Purgatory
from barnabas.broker.waiting.timing_wheel import Timer
from barnabas.model import TopicPartition

# The key of a fetch with too many partitions to watch one by one: a change of any partition.
ANY_PARTITION: Final = TopicPartition("", -1)

_DELETIONS_PURGE_INTERVAL_MIN: Final = 100


class DelayedOperations:
    __slots__ = ("_changed", "_loop", "deletions", "fetches", "produces", "wide_fetch_partitions")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timer: Timer,
        *,
        fetch_purge_interval: int = 1_000,
        produce_purge_interval: int = 1_000,
        delete_records_purge_interval: int = 1,
    ) -> None:
        self.fetches = Purgatory(timer, purge_interval=fetch_purge_interval)
        # Operations that wait until their records are replicated: see `await_replicated`.
        self.produces = Purgatory(timer, purge_interval=produce_purge_interval)
        self.deletions = Purgatory(
            timer, purge_interval=max(delete_records_purge_interval, _DELETIONS_PURGE_INTERVAL_MIN)
        )
        # The number of partitions of the fetches that wait for a change of any.
        self.wide_fetch_partitions = 0
        self._loop = loop
        self._changed: set[TopicPartition] = set()

    def note_change(self, key: TopicPartition) -> None:
        """Makes the requests that wait for the partition check it again, soon."""
        if self.fetches.watches(ANY_PARTITION):
            self._schedule(ANY_PARTITION)
        if self.fetches.watches(key) or self.produces.watches(key) or self.deletions.watches(key):
            self._schedule(key)

    def _schedule(self, key: TopicPartition) -> None:
        # Waiting requests are answered after the request that made the change, and once for many changes.
        if not self._changed:
            self._loop.call_soon(self._complete)
        self._changed.add(key)

    def _complete(self) -> None:
        changed = self._changed
        self._changed = set()
        for key in changed:
            self.produces.check_and_complete(key)
            self.fetches.check_and_complete(key)
            self.deletions.check_and_complete(key)
