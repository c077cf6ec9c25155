"""Bounds of replication, for replicas that a tool moves (KIP-73): a rate for leaders, and one for followers.

The rates are settings of a broker, in bytes a second. A topic lists the replicas that count (partition:broker, or `*`)
in `leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`. A replica that is in sync is
not held back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from barnabas.broker.quotas.rates import Rate
from barnabas.broker.replication.partition import Partition
from barnabas.clock import Clock
from barnabas.config.log_config import LONG_MAX, LogConfig
from barnabas.model import BrokerId, TopicPartition
from barnabas.replication.fetcher import Fetcher

_ALL: Final = ("*",)


class ReplicationThrottle:
    """`limit` returns the rate, LONG_MAX if there is none; `listed` the setting of a topic."""

    def __init__(
        self,
        broker_id: BrokerId,
        clock: Clock,
        limit: Callable[[], int],
        listed: Callable[[LogConfig], tuple[str, ...]],
    ) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._limit = limit
        self._listed = listed
        self._rate = Rate(clock.now_ms())

    @property
    def is_exceeded(self) -> bool:
        limit = self._limit()
        if limit == LONG_MAX:
            return False
        value, _ = self._rate.measure(self._clock.now_ms())
        return value > limit

    def covers(self, partition: Partition) -> bool:
        log = partition.log
        if log is None:
            return False
        listed = self._listed(log.config)
        if not listed:
            return False
        return listed == _ALL or f"{partition.topic_partition.partition}:{self._broker_id}" in listed

    def record(self, partition: Partition, size_bytes: int) -> None:
        """Counts the bytes if the replica is one of those that the topic lists."""
        if self.covers(partition):
            self._rate.record(size_bytes, self._clock.now_ms())


class FollowerThrottle:
    """Holds back the partitions that fetchers copy."""

    def __init__(
        self, throttle: ReplicationThrottle, find: Callable[[TopicPartition], Partition | None]
    ) -> None:
        self._throttle = throttle
        self._find = find

    def record(self, key: TopicPartition, size_bytes: int) -> None:
        partition = self._find(key)
        if partition is not None:
            self._throttle.record(partition, size_bytes)

    def held_back(self, fetcher: Fetcher) -> Collection[TopicPartition]:
        """The partitions that are not to be fetched now: they are behind, and the rate is exceeded."""
        if not self._throttle.is_exceeded:
            return ()
        return [
            each.topic_partition
            for each in fetcher.partitions()
            if (each.lag is None or each.lag > 0)
            and (partition := self._find(each.topic_partition)) is not None
            and self._throttle.covers(partition)
        ]
