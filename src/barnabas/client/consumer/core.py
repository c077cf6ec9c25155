"""The consumer's side on the loop: it connects the parts and carries out calls."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas.client.connections.brokers import Brokers, retrying
from barnabas.client.connections.cluster import Cluster, PartitionInfo, TopicInfo
from barnabas.client.connections.coordinator import Coordinator, CoordinatorType
from barnabas.client.connections.outage import Outage
from barnabas.client.consumer.fetched import Fetched
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.offsets import Lookup, Positions
from barnabas.client.groups.classic import ClassicMember
from barnabas.client.groups.consumer import ConsumerMember
from barnabas.client.groups.handover import Handover
from barnabas.client.groups.member import GroupMember, MemberParts
from barnabas.client.groups.offsets import GroupOffsets
from barnabas.client.partition_state import PartitionState
from barnabas.client.samples import Samples
from barnabas.client.settings import ConsumerSettings
from barnabas.client.subscription import (
    ConsumerError,
    ConsumerGroupMetadata,
    NoOffsetForPartition,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Subscription,
)
from barnabas.clock import Clock, SystemClock
from barnabas.errors import KafkaError, RequestTimedOut, UnknownTopicOrPartition
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

_MEMBERS: Final[dict[str, type[GroupMember]]] = {"classic": ClassicMember, "consumer": ConsumerMember}


class ConsumerCore:
    def __init__(
        self,
        settings: ConsumerSettings,
        subscription: Subscription,
        notify: Callable[[], None],
        *,
        clock: Clock | None = None,
    ) -> None:
        """Must be created on the loop. `notify` is called when there is something for the polling caller."""
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._subscription = subscription
        self._notify = notify
        outage = Outage()
        self._brokers = Brokers(settings, outage=outage)
        self._cluster = Cluster(
            settings,
            self._brokers,
            allow_auto_topic_creation=settings.allow_auto_create_topics,
            needed=self._needed_topics,
            max_idle_ms=0,
        )
        self._cluster.on_update += [self._share_brokers, self._report_missing]
        # Subscribed topics and assigned partitions that do not exist, each reported once.
        self._missing: set[str] = set()
        self.handover = Handover(notify)
        self._lookup = Lookup(settings, self._brokers, self._cluster)
        self._member: GroupMember | None = None
        self._offsets: GroupOffsets | None = None
        # A request to the coordinator must not wait behind a fetch, nor a fetch behind a join.
        self._group_brokers: Brokers | None = None
        if settings.group_id is not None:
            self._group_brokers = Brokers(settings, outage=outage)
            self._group_brokers.request_latency = self._brokers.request_latency
            coordinator = Coordinator(self._group_brokers, CoordinatorType.GROUP, settings.group_id)
            parts = MemberParts(
                settings=settings,
                brokers=self._group_brokers,
                cluster=self._cluster,
                coordinator=coordinator,
                subscription=subscription,
                handover=self.handover,
            )
            self._member = _MEMBERS[settings.group_protocol](parts)
            self._offsets = GroupOffsets(
                settings,
                self._group_brokers,
                coordinator,
                self._member.identity,
                self._member.has_overtaken,
                self._is_gone,
            )
        self._positions = Positions(
            settings,
            self._lookup,
            self._cluster,
            subscription,
            clock or SystemClock(),
            fetch_committed=None if self._offsets is None else self._fetch_committed,
            on_found=self._on_found,
            on_failed=self._on_failed,
        )
        self._fetcher = Fetcher(
            settings,
            self._brokers,
            self._cluster,
            subscription,
            on_fetched=notify,
            needs_validation=self._positions.needs_validation,
        )
        self.queue = self._fetcher.queue
        # Commits take turns: an older one that is tried again must not undo a newer one.
        self._commits = asyncio.Lock()
        self._auto_commit: asyncio.Task[None] | None = None
        self._committed = 0
        self._commit_latency = Samples("commit-latency")

    @property
    def reset_timestamp(self) -> int | None:
        return self._positions.reset_timestamp()

    @property
    def resets(self) -> bool:
        """Whether auto.offset.reset says where to begin."""
        policy = self._positions.policy
        return policy.timestamp is not None or policy.duration_ms is not None

    def changed(self) -> None:
        """The assignment or a position has changed."""
        for topic in {partition.topic for partition in self._subscription.partitions}:
            self._cluster.track(topic)
        self._cluster.start()
        self._positions.wake()
        self._fetcher.wake()

    def _share_brokers(self) -> None:
        """The group finds another coordinator by any broker, also if none of the bootstrap addresses is left."""
        if self._group_brokers is not None:
            for node in self._brokers.nodes:
                self._group_brokers.learn(node)

    def _report_missing(self) -> None:
        """A topic may come later, so this is no error of a call. But a wrong name must not pass in silence.

        A topic that matched a pattern was a right name, and has been deleted.
        """
        subscription = self._subscription
        names = subscription.topics if subscription.pattern is None else ()
        wanted = {TopicPartition(topic, 0) for topic in names}
        if subscription.is_manual:
            wanted |= subscription.partitions.keys()
        gone = set()
        for partition in wanted:
            missing = self._cluster.missing(partition)
            if missing is not None:
                gone.add(self._told(partition, missing))
        for text in sorted(gone - self._missing):
            log.warning("%s", text)
            self._settings.report(UnknownTopicOrPartition(text))
        self._missing = gone

    def _told(self, partition: TopicPartition, missing: UnknownTopicOrPartition) -> str:
        if self._cluster.is_being_created(partition.topic):
            return (
                f"topic {partition.topic!r} does not exist yet: check the name. This consumer has asked the broker to"
                " create it, and the broker does so if auto.create.topics.enable is true;"
                " allow.auto.create.topics=false prevents that"
            )
        return f"{missing}; this consumer waits for it"

    def metrics(self) -> dict[str, float]:
        """With the names of Kafka's own metrics, where it has them."""
        found = self._brokers.metrics()
        if self._group_brokers is not None:
            for name, value in self._group_brokers.counters().items():
                found[name] += value
        partitions = list(self._subscription.partitions.values())
        lags = [
            state.high_watermark - state.position
            for state in partitions
            if state.position is not None and state.high_watermark >= 0
        ]
        now_s = self._loop.time()
        found |= self._fetcher.fetch_latency.metrics(now_s) | self._commit_latency.metrics(now_s)
        return found | {
            "assigned-partitions": len(partitions),
            "bytes-fetched-total": self._fetcher.fetched_bytes,
            "bytes-waiting": sum(state.waiting_bytes for state in partitions),
            "commit-total": self._committed,
            "fetch-total": self._fetcher.fetches,
            "last-poll-seconds-ago": self.handover.poll_delay_s(),
            "rebalance-total": self.handover.rebalanced,
            "records-lag-max": max(lags, default=0),
        }

    def _needed_topics(self) -> set[str]:
        topics = {partition.topic for partition in self._subscription.partitions}
        topics |= self._subscription.topics
        if self._member is not None:
            topics |= self._member.watched_topics
        return topics

    def subscribed(self) -> None:
        """The subscription has changed: the next poll, or the running membership, applies it."""
        subscription = self._subscription
        self._cluster.tracks_all = subscription.pattern is not None
        for topic in subscription.topics:
            self._cluster.track(topic)
        self._cluster.start()
        if subscription.pattern is not None:
            self._cluster.want_refresh()
        if self._member is not None and self._member.is_started:
            self._member.subscription_changed()

    def join(self) -> None:
        """Begins to be a member of the group."""
        if self._member is not None and self._subscription.is_subscribed:
            self._member.start()

    async def leave(self, *, is_closing: bool = False) -> None:
        """Ends the membership; a static member that closes will be back and says nothing."""
        if self._member is not None and self._member.is_started:
            is_static = self._settings.group_instance_id is not None
            is_told = not (is_closing and is_static and self._settings.group_protocol == "classic")
            await self._member.leave(is_told=is_told)

    def group_metadata(self) -> ConsumerGroupMetadata:
        if self._member is None:
            raise ConsumerError("a consumer without group.id is no member of a group")
        return self._member.identity()

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: float) -> None:
        store = self._group_offsets()
        loop = self._loop
        deadline_s = loop.time() + timeout_ms / 1000
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._commits.acquire()
        except TimeoutError:
            raise RequestTimedOut(
                f"committing offsets of group {self._settings.group_id} was not done within {timeout_ms:g} ms: an"
                " earlier commit is still under way"
            ) from None
        try:
            begun_s = loop.time()
            await store.commit(offsets, max(0, round((deadline_s - begun_s) * 1000)))
            now_s = loop.time()
            self._commit_latency.add((now_s - begun_s) * 1000, now_s)
            self._committed += 1
        finally:
            self._commits.release()

    def _is_gone(self, partition: TopicPartition) -> bool:
        """Whether the metadata has no such partition; it may be older than its deletion."""
        self._cluster.want_refresh()
        return self._cluster.missing(partition) is not None

    async def finish_commits(self) -> None:
        """Waits until all commits that were begun are over."""
        async with self._commits:
            pass

    def commit_soon(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_done: Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], None],
    ) -> None:
        """Commits behind the caller's back, unless the last such commit is still under way."""
        if self._auto_commit is None or self._auto_commit.done():
            self._auto_commit = asyncio.get_running_loop().create_task(self._commit_quietly(offsets, on_done))

    async def _commit_quietly(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_done: Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], None],
    ) -> None:
        try:
            await self.commit(offsets, self._settings.default_api_timeout_ms)
        except KafkaError as error:
            log.warning("offsets of group %s were not committed: %s", self._settings.group_id, error)
            on_done(offsets, error)
        else:
            on_done(offsets, None)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return await self._group_offsets().committed(partitions, timeout_ms)

    async def position(self, state: PartitionState, timeout_ms: float) -> int:
        """The offset of the next record, found out if need be."""
        if state.position is None:
            partition = state.partition
            self._cluster.track(partition.topic)
            asked_s = self._loop.time()

            async def attempt() -> KafkaError | None:
                try:
                    await self._positions.find([state])
                except UnknownTopicOrPartition as error:
                    if self._lookup.is_missing(partition, error, asked_s):
                        return error
                    raise
                return None

            missing = await retrying(
                attempt,
                settings=self._settings,
                timeout_ms=timeout_ms,
                what=f"finding the position of {partition}",
            )
            if missing is not None:
                raise missing
            if state.position is None:
                raise NoOffsetForPartition(
                    f"{partition} has no committed offset and auto.offset.reset=none: seek() to where reading is to"
                    " begin"
                )
        return state.position

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return await self._lookup.offsets_for_times(timestamps, timeout_ms)

    async def partitions_for(self, topic: str, timeout_ms: float) -> tuple[PartitionInfo, ...]:
        info = await self._cluster.find_topic(topic, timeout_ms)
        return info.partitions

    async def topics(self, timeout_ms: float) -> dict[str, TopicInfo]:
        """All topics of the cluster, asked for now."""
        cluster = Cluster(self._settings, self._brokers)
        cluster.tracks_all = True
        await retrying(cluster.refresh, settings=self._settings, timeout_ms=timeout_ms, what="listing topics")
        return cluster.topics

    async def close(self) -> None:
        if self._auto_commit is not None:
            self._auto_commit.cancel()
            await asyncio.gather(self._auto_commit, return_exceptions=True)
        await self._fetcher.close()
        await self._positions.close()
        await self._cluster.close()
        await self._brokers.close()
        if self._group_brokers is not None:
            await self._group_brokers.close()

    def _group_offsets(self) -> GroupOffsets:
        if self._offsets is None:
            raise ConsumerError("offsets are committed for a group: set group.id")
        return self._offsets

    async def _fetch_committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return await self._group_offsets().committed(partitions, self._settings.default_api_timeout_ms)

    def _on_found(self) -> None:
        self._fetcher.wake()

    def _on_failed(self, state: PartitionState, error: KafkaError) -> None:
        state.retry_s = math.inf
        self.queue.append(Fetched(state, b"", error=error))
        self._notify()
