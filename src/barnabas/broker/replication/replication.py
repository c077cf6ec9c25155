"""Replication between brokers: the fetchers of this broker, and the in-sync replicas of the partitions that it leads.

A broker that is alone has none of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Protocol

from barnabas.broker.replication.fetchers import ReplicaFetchers
from barnabas.broker.replication.follower_writes import FollowerWrites
from barnabas.broker.replication.isr_changes import ControllerLink, IsrChanges, shrink_all
from barnabas.broker.replication.replica_fetcher import FetcherContext, Links
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.throttle import FollowerThrottle, ReplicationThrottle
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.config.live_settings import LiveSettings
from barnabas.log.manager.manager import LogManager
from barnabas.model import TopicPartition
from barnabas.peers.versions import TOPIC_IDS, TRUNCATION_ON_FETCH, ProtocolLevel
from barnabas.replication.fetcher import FetcherSettings

_FIRST_FETCH_WITH_TOPIC_IDS: Final = 13
_FIRST_FETCH_WITH_REPLICA_STATE: Final = 15


class PeerLinks(Links, Protocol):
    @property
    def level(self) -> ProtocolLevel: ...


class Replication:
    """`executor` is for fetchers alone. `broker_epoch` returns that of the current registration."""

    def __init__(
        self,
        replicas: ReplicaManager,
        manager: LogManager,
        settings: LiveSettings,
        scheduling: Scheduling,
        executor: Executor,
        peers: PeerLinks,
        controller: ControllerLink,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._settings = settings
        self._executor = executor
        self._level = peers.level
        self._broker_epoch = broker_epoch
        config = settings.current
        leader_throttle = ReplicationThrottle(
            replicas.broker_id,
            scheduling.clock,
            lambda: settings.current.leader_replication_throttled_rate,
            lambda topic: topic.leader_replication_throttled_replicas,
        )
        follower_throttle = ReplicationThrottle(
            replicas.broker_id,
            scheduling.clock,
            lambda: settings.current.follower_replication_throttled_rate,
            lambda topic: topic.follower_replication_throttled_replicas,
        )
        context = FetcherContext(
            loop=scheduling.loop,
            clock=scheduling.clock,
            links=peers,
            writes=FollowerWrites(manager),
            executor=executor,
            timeout_ms=config.replica_socket_timeout_ms,
            written=self._written,
            throttle=FollowerThrottle(follower_throttle, replicas.find),
        )
        self.fetchers = ReplicaFetchers(
            context, self._fetcher_settings, lambda: settings.current.num_replica_fetchers
        )
        self.isr_changes = IsrChanges(
            scheduling.loop,
            controller,
            replicas.broker_id,
            broker_epoch,
            replicas.isr_metrics,
            has_topic_ids=self._level >= TOPIC_IDS,
        )
        replicas.begin_replication(self.fetchers, self.isr_changes, leader_throttle)
        self._upkeep = scheduling.loop.create_task(self._keep_up())

    async def close(self) -> None:
        """Returns when nothing writes to logs any more."""
        self._upkeep.cancel()
        await asyncio.wait([self._upkeep])
        await self.isr_changes.close()
        await self.fetchers.close()
        self._executor.shutdown(wait=True)

    def _written(self, key: TopicPartition, size_bytes: int, has_new_watermark: bool) -> None:
        if size_bytes:
            self._replicas.topic_metrics.of(key.topic).replication_bytes_in += size_bytes
        if has_new_watermark:
            self._replicas.delayed.note_change(key)

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(self._settings.current.replica_lag_time_max_ms / 2_000)
            shrink_all(list(self._replicas))
            # The number of fetchers may change at run time.
            self.fetchers.resize()

    def _fetcher_settings(self) -> FetcherSettings:
        config = self._settings.current
        fetch_version = self._level.version_of("Fetch")
        return FetcherSettings(
            replica_id=self._replicas.broker_id,
            broker_epoch=self._broker_epoch,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
            truncates_on_fetch=self._level >= TRUNCATION_ON_FETCH,
            has_topic_ids=fetch_version >= _FIRST_FETCH_WITH_TOPIC_IDS,
            has_replica_state=fetch_version >= _FIRST_FETCH_WITH_REPLICA_STATE,
        )
