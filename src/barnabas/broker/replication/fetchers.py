"""Which fetcher copies which partition: for each leader there are `num.replica.fetchers` of them.

A partition belongs to one fetcher of its leader, by the hash that Kafka uses. A fetcher is created with its first
partition. A partition changes its role only when no thread writes to its log any more: see `released`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from barnabas.broker.replication.follower_writes import latest_epoch
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_fetcher import FetcherContext, ReplicaFetcher
from barnabas.broker.replication.replica_manager import FetcherTraffic, Lag
from barnabas.model import BrokerId, TopicPartition
from barnabas.primitives.freed_memory import keep_freed_memory
from barnabas.primitives.java_hash import java_hash
from barnabas.replication.fetcher import FetcherSettings

log = logging.getLogger(__name__)

_INT32: Final = 1 << 32
# Some answers of a leader.
_KEPT_BYTES_MAX: Final = 32 * 1024 * 1024


class ReplicaFetchers:
    """`settings` returns the current settings of a fetcher, `count` the value of `num.replica.fetchers`."""

    def __init__(
        self, context: FetcherContext, settings: Callable[[], FetcherSettings], count: Callable[[], int]
    ) -> None:
        self._context = context
        self._settings = settings
        self._count = count
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._followed: dict[TopicPartition, tuple[Partition, ReplicaFetcher]] = {}
        # Partitions that failed in fetchers that have ended.
        self._failed: set[TopicPartition] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._fetchers)

    def follow(self, partition: Partition) -> None:
        """Copies the partition from its leader, as soon as no thread writes to its log."""
        key = partition.topic_partition
        self.leave(key)
        released = self.released([key])
        if released is None:
            self._follow(partition, partition.leader_epoch)
        else:
            follow = partial(self._follow, partition, partition.leader_epoch)
            released.add_done_callback(lambda _: follow())

    def _follow(self, partition: Partition, leader_epoch: int) -> None:
        replica = partition.log
        key = partition.topic_partition
        if (
            self._is_closed
            or replica is None
            or not partition.is_follower
            or partition.leader_epoch != leader_epoch
            or key in self._followed
        ):
            # The partition has got another role, or has failed, in the meantime.
            return
        fetcher = self._fetcher(partition.leader, fetcher_number(key, self._count()))
        steps = fetcher.machine.follow(
            key,
            topic_id=partition.topic_id,
            leader_epoch=leader_epoch,
            log_end_offset=replica.log_end_offset,
            high_watermark=replica.high_watermark,
            last_epoch=latest_epoch(replica),
            log_start_offset=replica.log_start_offset,
        )
        self._followed[key] = (partition, fetcher)
        fetcher.failed.discard(key)
        fetcher.add(steps)

    def leave(self, key: TopicPartition) -> None:
        """The partition is not to be copied any more. A thread may still write to its log: see `released`."""
        self._failed.discard(key)
        followed = self._followed.pop(key, None)
        if followed is not None:
            _, fetcher = followed
            fetcher.machine.unfollow([key])
            fetcher.failed.discard(key)

    def released(self, keys: Iterable[TopicPartition]) -> asyncio.Future[Any] | None:
        """Done when no thread writes to the logs of these partitions; None if that is so now."""
        wanted = set(keys)
        busy = [
            fetcher.written
            for fetcher in self._fetchers.values()
            if fetcher.written is not None and not wanted.isdisjoint(fetcher.writing)
        ]
        return asyncio.gather(*busy) if busy else None

    def resize(self) -> None:
        """The number of fetchers has changed: moves partitions to the fetchers that they belong to now."""
        count = self._count()
        for key, (partition, fetcher) in list(self._followed.items()):
            if fetcher.number != fetcher_number(key, count):
                self.follow(partition)

    def lags(self) -> Iterator[Lag]:
        for key, (_, fetcher) in list(self._followed.items()):
            followed = fetcher.machine.partition(key)
            if followed is not None and followed.lag is not None:
                yield Lag(key, fetcher.leader, fetcher.number, followed.lag)

    def failed_count(self) -> int:
        return len(self._failed) + sum(len(fetcher.failed) for fetcher in self._fetchers.values())

    def traffic(self) -> Iterator[FetcherTraffic]:
        for each in list(self._fetchers.values()):
            yield FetcherTraffic(each.leader, each.number, each.requests_sent, each.bytes_received)

    async def close(self) -> None:
        """Returns when nothing writes to logs any more."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _fetcher(self, leader: BrokerId, number: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            # Each answer of a leader is a large block.
            keep_freed_memory(_KEPT_BYTES_MAX)
            fetcher = ReplicaFetcher(leader, number, self._context, self._settings())
            self._fetchers[leader, number] = fetcher
            task = self._context.loop.create_task(fetcher.run())
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, fetcher))
        return fetcher

    def _ended(self, fetcher: ReplicaFetcher, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        del self._fetchers[fetcher.leader, fetcher.number]
        if task.cancelled():
            return
        left = []
        for key, (partition, owner) in list(self._followed.items()):
            if owner is not fetcher:
                continue
            del self._followed[key]
            if key in fetcher.failed:
                # As in Apache Kafka, it waits for its next role.
                self._failed.add(key)
            else:
                left.append((partition, partition.leader_epoch))
        # Another fetcher goes on where the log ends.
        error = task.exception()
        if error is None:
            # This one had decided to end before the partitions came.
            self._follow_again(left)
        else:
            log.error("A fetcher of broker %d has failed", fetcher.leader, exc_info=error)
            # The next one may fail at the same place.
            self._context.loop.call_later(self._settings().backoff_ms / 1_000, self._follow_again, left)

    def _follow_again(self, partitions: Iterable[tuple[Partition, int]]) -> None:
        """Without those that got another role, or were followed and failed, in the meantime."""
        for partition, leader_epoch in partitions:
            key = partition.topic_partition
            if (
                partition.leader_epoch == leader_epoch
                and key not in self._followed
                and key not in self._failed
            ):
                self.follow(partition)


def fetcher_number(key: TopicPartition, count: int) -> int:
    """Kafka's choice: the absolute value of an int of 32 bits, which counts as 0 where Java's int has none."""
    value = (31 * java_hash(key.topic) + key.partition) % _INT32
    if value >= _INT32 // 2:
        value = 0 if value == _INT32 // 2 else _INT32 - value
    return value % count
