"""A client's metadata of the cluster: brokers, topics, partitions and their leaders.

The client only asks for tracked topics. It refreshes the metadata when it is too old (`metadata.max.age.ms`), when it
has proved wrong (`invalidate`), and while a tracked topic has an error or a partition without a leader. It repeats a
failed attempt with back-off. The leader epoch of a partition only increases: an older answer from a broker that lags
behind does not replace a newer one, unless the topic was recreated.

A topic that is no longer needed is dropped with the next request: after it was unused for a while, and at once if it
does not exist. The client asks brokers to create only topics that are needed and missing: a deleted topic is not
recreated because it was used once, and a question about a topic does not create it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.client.connections.brokers import Brokers, backoff_ms_after, retrying
from barnabas.client.settings import ClientSettings
from barnabas.errors import (
    NONE,
    InvalidTopicException,
    KafkaError,
    NetworkException,
    RequestTimedOut,
    UnknownTopicOrPartition,
    error_for_code,
)
from barnabas.model import TopicPartition
from barnabas.peers.node import Node
from barnabas.protocol.message import ZERO_UUID
from barnabas.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic

log = logging.getLogger(__name__)

NO_LEADER: Final = -1
# Brokers hear of a new topic one after the other, so the first answers that do not have it are not believed.
MISSING_WAIT_S: Final = 0.5


class PartitionInfo(NamedTuple):
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicInfo(NamedTuple):
    """One topic. The index of a partition is its position in the list."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    error: KafkaError | None


class Cluster:
    def __init__(
        self,
        settings: ClientSettings,
        brokers: Brokers,
        *,
        allow_auto_topic_creation: bool = False,
        needed: Callable[[], Container[str]] = frozenset,
        max_idle_ms: float = math.inf,
        chooser: random.Random | None = None,
    ) -> None:
        """Must be created on the loop that uses it.

        `needed` says which topics stay tracked however long ago they were used; the others are dropped `max_idle_ms`
        after their last use.
        """
        self.cluster_id: str | None = None
        self.controller_id = -1
        # Called after each answer, on the loop.
        self.on_update: list[Callable[[], None]] = []
        # Whether all topics of the cluster are asked for, and not only the tracked ones.
        self.tracks_all = False
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._brokers = brokers
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._random = chooser or random.Random()
        self._needed = needed
        self._max_idle_s = max_idle_ms / 1000
        # When each was used last.
        self._tracked: dict[str, float] = {}
        # The number of waiters for an answer about a topic.
        self._awaited: Counter[str] = Counter()
        # Those of them who write to the topic.
        self._awaited_to_write: Counter[str] = Counter()
        self._topics: dict[str, TopicInfo] = {}
        self._names_by_id: dict[bytes, str] = {}
        self._is_wanted = asyncio.Event()
        # A topic is tracked since the last attempt: it does not wait for the back-off of others.
        self._is_new = asyncio.Event()
        self._answered = asyncio.Condition()
        self._last_error: KafkaError | None = None
        self._asked_s = float("-inf")
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to refresh the metadata; until then only `refresh` asks."""
        if self._keeper is None:
            self._keeper = self._loop.create_task(self._keep_fresh())

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None

    def track(self, topic: str) -> None:
        """The topic is used, and kept fresh from now on; it is asked for soon if it is not known."""
        if topic not in self._tracked and topic not in self._topics:
            self._is_wanted.set()
            self._is_new.set()
        self._tracked[topic] = self._loop.time()

    def used(self, topic: str) -> None:
        """A topic that is tracked was used just now."""
        if topic in self._tracked:
            self._tracked[topic] = self._loop.time()

    @contextlib.contextmanager
    def awaiting(self, topics: Iterable[str], *, to_write: bool = False) -> Iterator[None]:
        """Tracks topics, and drops none of them in the meantime. A topic that is written to may be created."""
        names = Counter(topics)
        for name in names:
            self.track(name)
        self._awaited += names
        if to_write:
            self._awaited_to_write += names
        try:
            yield
        finally:
            self._awaited -= names
            if to_write:
                self._awaited_to_write -= names

    def _let_go(self) -> None:
        """Forgets topics that are of no use: those that were not used for long, and at once those that are gone."""
        oldest_s = self._loop.time() - self._max_idle_s
        idle = [
            name
            for name, used_s in self._tracked.items()
            if name not in self._awaited and (used_s <= oldest_s or self._is_gone(name))
        ]
        if idle:
            needed = self._needed()
            for name in idle:
                if name not in needed:
                    del self._tracked[name]
                    if not self.tracks_all:
                        self._forget(name)

    def _is_gone(self, name: str) -> bool:
        return isinstance(self.topic_error(name), UnknownTopicOrPartition)

    def _forget(self, name: str) -> None:
        info = self._topics.pop(name, None)
        if info is not None:
            self._names_by_id.pop(info.topic_id, None)

    @property
    def tracked(self) -> list[str]:
        return list(self._tracked)

    @property
    def topics(self) -> dict[str, TopicInfo]:
        """All topics that are known, those with an error too."""
        return dict(self._topics)

    def topic(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        info = self._topics.get(tp.topic)
        if info is None or not 0 <= tp.partition < len(info.partitions):
            return None
        return info.partitions[tp.partition]

    def leader_of(self, tp: TopicPartition) -> int | None:
        """The node id of the partition's leader; None if that is not known."""
        info = self.partition(tp)
        return None if info is None or info.leader == NO_LEADER else info.leader

    def rack_of(self, node_id: int) -> str | None:
        """The rack of a broker; None if it is not known or has none."""
        node = self._brokers.node(node_id)
        return None if node is None else node.rack

    def leader_epoch_of(self, tp: TopicPartition) -> int:
        info = self.partition(tp)
        return -1 if info is None else info.leader_epoch

    def partition_count(self, topic: str) -> int | None:
        info = self._topics.get(topic)
        return None if info is None or not info.partitions else len(info.partitions)

    def topic_id(self, name: str) -> bytes | None:
        """16 bytes; None if the topic is not known or its broker knows no topic ids."""
        info = self._topics.get(name)
        return None if info is None or info.topic_id == ZERO_UUID else info.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names_by_id.get(topic_id)

    def missing(self, tp: TopicPartition) -> UnknownTopicOrPartition | None:
        """The error of a partition that does not exist, as far as the last answer says."""
        info = self._topics.get(tp.topic)
        if self._is_gone(tp.topic) or (info is None and self.tracks_all):
            return UnknownTopicOrPartition(
                f"topic {tp.topic!r} does not exist: check the name, or create it first"
            )
        count = self.partition_count(tp.topic)
        if count is not None and tp.partition >= count:
            partitions = "1 partition" if count == 1 else f"{count} partitions"
            return UnknownTopicOrPartition(
                f"topic {tp.topic!r} has {partitions}, so there is no partition {tp.partition}"
            )
        return None

    def is_missing(self, tp: TopicPartition, asked_s: float) -> bool:
        """Whether a question of that time may be answered with the error: nobody is creating the topic."""
        return (
            self._loop.time() >= asked_s + MISSING_WAIT_S
            and self.missing(tp) is not None
            and not self.is_being_created(tp.topic)
        )

    def is_being_created(self, name: str) -> bool:
        """Whether the topic is missing and this client asks brokers to create it."""
        return (
            self._allow_auto_topic_creation
            and self._is_gone(name)
            and (name in self._awaited_to_write or name in self._needed())
        )

    def topic_error(self, name: str) -> KafkaError | None:
        info = self._topics.get(name)
        return None if info is None else info.error

    def invalidate(self, tp: TopicPartition | None = None) -> None:
        """The metadata has proved wrong, and is refreshed soon. A named partition has no leader until then."""
        if tp is not None:
            info = self.partition(tp)
            if info is not None:
                self._replace(info._replace(leader=NO_LEADER))
        self._is_wanted.set()

    def want_refresh(self) -> None:
        """Refreshes the metadata soon; the old one is used until then."""
        self._is_wanted.set()

    def want_refresh_if_unreachable(self, node_id: int) -> None:
        """Asks soon if the broker could not be reached lately: its partitions may have another leader by now."""
        if self._brokers.backoff_left_s(node_id) > 0:
            self._is_wanted.set()

    def move_leader(self, tp: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Takes the leader in a Produce or Fetch response (KIP-951), if it is newer."""
        info = self.partition(tp)
        if info is None or leader_epoch <= info.leader_epoch or self._brokers.node(leader) is None:
            return False
        self._replace(info._replace(leader=leader, leader_epoch=leader_epoch))
        return True

    def _replace(self, info: PartitionInfo) -> None:
        topic = self._topics[info.topic]
        partitions = list(topic.partitions)
        partitions[info.partition] = info
        self._topics[info.topic] = topic._replace(partitions=tuple(partitions))

    async def refresh(self, *, timeout_ms: float | None = None) -> None:
        """Asks once for the tracked topics; raises an error of the request.

        Does not raise errors of single topics: see `topic_error`.
        """
        self._is_wanted.clear()
        self._asked_s = self._loop.time()
        self._let_go()
        if self.tracks_all:
            await self._ask(None, timeout_ms)
            return
        missing = {name for name in self._tracked if name not in self._topics or self._is_gone(name)}
        created: set[str] = set()
        if missing and self._allow_auto_topic_creation:
            needed = self._needed()
            created = {name for name in missing if name in self._awaited_to_write or name in needed}
        others = [name for name in self._tracked if name not in created]
        if created:
            await self._ask(sorted(created), timeout_ms, creates=True)
        if others or not created:
            await self._ask(others, timeout_ms)

    async def _ask(
        self, topics: list[str] | None, timeout_ms: float | None, *, creates: bool = False
    ) -> None:
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=creates,
        )
        answer: MetadataResponse = await self._brokers.request(None, request, timeout_ms=timeout_ms)
        if answer.error_code != NONE:
            raise error_for_code(
                answer.error_code, "the broker asks the client to start again with bootstrap.servers"
            )
        self._take(answer, is_complete=topics is None)
        async with self._answered:
            self._answered.notify_all()
        for listener in list(self.on_update):
            listener()

    async def find_topic(self, name: str, timeout_ms: float) -> TopicInfo:
        """The topic with its partitions; UnknownTopicOrPartition soon if fresh answers say that it does not exist."""
        self.start()
        info = self._topics.get(name)
        if info is not None and info.error is None and info.partitions:
            return info

        asked_s = self._loop.time()
        first = TopicPartition(name, 0)

        async def attempt() -> TopicInfo | UnknownTopicOrPartition:
            await self.refresh()
            missing = self.missing(first)
            if missing is not None and self.is_missing(first, asked_s):
                return missing
            info = self._topics.get(name)
            error = missing if info is None else info.error
            if info is None or error is not None:
                raise error or NetworkException(f"the broker left topic {name!r} out of its answer")
            return info

        with self.awaiting([name]):
            found = await retrying(
                attempt,
                settings=self._settings,
                timeout_ms=timeout_ms,
                what=f"looking up the partitions of topic {name!r}",
            )
        if isinstance(found, UnknownTopicOrPartition):
            raise found
        return found

    async def wait_for_topic(self, name: str, timeout_ms: float) -> TopicInfo:
        """The topic with its partitions, once it is known, to write to it.

        A topic that does not exist is waited for (it may be in the making) until the time is over: then
        UnknownTopicOrPartition. Errors that waiting does not heal are raised at once.
        """
        self.track(name)
        self.start()
        info = self._topics.get(name)
        if info is not None and info.error is None and info.partitions:
            return info
        self._is_wanted.set()
        try:
            with self.awaiting([name], to_write=True):
                async with asyncio.timeout(timeout_ms / 1000), self._answered:
                    while True:
                        await self._answered.wait()
                        info = self._topics.get(name)
                        if info is None:
                            continue
                        if info.error is None and info.partitions:
                            return info
                        if info.error is not None and not info.error.retriable:
                            raise info.error.with_traceback(None)
        except TimeoutError:
            pass
        info = self._topics.get(name)
        if info is not None and info.error is not None:
            if isinstance(info.error, UnknownTopicOrPartition):
                raise UnknownTopicOrPartition(
                    f"topic {name!r} does not exist (asked for {timeout_ms:g} ms): create it first, or let the broker"
                    " do so (auto.create.topics.enable)"
                )
            raise type(info.error)(f"topic {name!r} is not usable after {timeout_ms:g} ms: {info.error}")
        because = f": {self._last_error}" if self._last_error is not None else ""
        raise RequestTimedOut(f"nothing is known of topic {name!r} after {timeout_ms:g} ms{because}")

    async def _keep_fresh(self) -> None:
        failures = 0
        while True:
            await self._wait_until_due(failures)
            self._is_wanted.clear()
            try:
                await self.refresh()
            except KafkaError as error:
                self._last_error = error
                failures += 1
                log.debug("metadata could not be had: %s", error)
                async with self._answered:
                    self._answered.notify_all()
                continue
            self._last_error = None
            failures = failures + 1 if self._is_anything_missing() else 0

    async def _wait_until_due(self, failures: int) -> None:
        """Waits until metadata is wanted or too old; after a failure, for a while or until a new topic is tracked."""
        if failures:
            await self._wait(self._is_new, self._backoff_s(failures - 1))
        else:
            await self._wait(self._is_wanted, self._settings.metadata_max_age_ms / 1000)
            # However often it is wanted, it is not asked for in a circle.
            left_s = self._asked_s + self._settings.retry_backoff_ms / 1000 - self._loop.time()
            if left_s > 0:
                await self._wait(self._is_new, left_s)
        self._is_new.clear()

    async def _wait(self, event: asyncio.Event, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()

    def _backoff_s(self, failures: int) -> float:
        settings = self._settings
        return (
            backoff_ms_after(
                failures,
                first_ms=settings.retry_backoff_ms,
                max_ms=settings.retry_backoff_max_ms,
                chooser=self._random,
            )
            / 1000
        )

    def _is_anything_missing(self) -> bool:
        """Whether a tracked topic is not usable yet in a way that may pass."""
        for name in self._tracked:
            info = self._topics.get(name)
            if info is None:
                return True
            if info.error is not None:
                if info.error.retriable:
                    return True
            elif any(each.leader == NO_LEADER for each in info.partitions):
                return True
        return False

    def _take(self, answer: MetadataResponse, *, is_complete: bool) -> None:
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        self._brokers.set_nodes(
            Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers
        )
        kept: Container[str] = self._tracked
        if is_complete:
            kept = {topic.name for topic in answer.topics if topic.name is not None}
        for topic in answer.topics:
            if topic.name is not None and topic.name in kept:
                self._take_topic(topic.name, topic)
        for name in [each for each in self._topics if each not in kept]:
            self._forget(name)

    def _take_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        before = self._topics.get(name)
        error: KafkaError | None = None
        if topic.error_code != NONE:
            error = error_for_code(topic.error_code)
            if isinstance(error, InvalidTopicException):
                error = InvalidTopicException(f"{name!r} is not the name of a topic")
            elif type(error) is not UnknownTopicOrPartition and before is not None and error.retriable:
                # A temporary error is no reason to drop known metadata.
                self._topics[name] = before._replace(error=error)
                return
        same = before is not None and before.topic_id == topic.topic_id
        partitions = []
        for index, each in enumerate(sorted(topic.partitions, key=lambda one: one.partition_index)):
            if each.partition_index != index:
                raise NetworkException(
                    f"the metadata of topic {name!r} has partition {each.partition_index} where {index} is due"
                )
            fresh = PartitionInfo(
                name,
                index,
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            if same and before is not None and index < len(before.partitions):
                known = before.partitions[index]
                if 0 <= fresh.leader_epoch < known.leader_epoch:
                    fresh = known
            partitions.append(fresh)
        if before is not None:
            self._names_by_id.pop(before.topic_id, None)
        self._topics[name] = TopicInfo(name, topic.topic_id, topic.is_internal, tuple(partitions), error)
        if topic.topic_id != ZERO_UUID:
            self._names_by_id[topic.topic_id] = name
