"""Shared parts of the members of classic groups and of KIP-848 groups: one task that lives with the group.

A member lives on the loop. It sends requests to the caller through the `Handover`, and waits.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.client.connections.brokers import Brokers, backoff_ms_after
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.coordinator import Coordinator
from barnabas.client.groups.handover import Change, Handover
from barnabas.client.settings import ConsumerSettings
from barnabas.client.subscription import ConsumerGroupMetadata, Subscription
from barnabas.errors import KafkaError
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberParts:
    """The parts that a member needs.

    Its connections are not those of fetches: a heartbeat must not wait for a fetch.
    """

    settings: ConsumerSettings
    brokers: Brokers
    cluster: Cluster
    coordinator: Coordinator
    subscription: Subscription
    handover: Handover


class GroupMember(ABC):
    def __init__(self, parts: MemberParts) -> None:
        settings = parts.settings
        assert settings.group_id is not None
        self.member_id = ""
        self.generation = -1
        # Those of all members, while this one assigns their partitions.
        self.watched_topics: frozenset[str] = frozenset()
        self._group_id = settings.group_id
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._brokers = parts.brokers
        self._cluster = parts.cluster
        self._coordinator = parts.coordinator
        self._subscription = parts.subscription
        self._handover = parts.handover
        self._random = random.Random()
        self._tasks: list[asyncio.Task[None]] = []
        parts.cluster.on_update.append(self._on_metadata)

    @property
    def is_started(self) -> bool:
        return bool(self._tasks)

    def identity(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(
            group_id=self._group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self._settings.group_instance_id,
        )

    def has_overtaken(self, generation: int) -> bool:
        """Whether this member continues with its partitions in a later generation, or is about to."""
        return False

    @abstractmethod
    def start(self) -> None:
        """Begins to be a member, if it is not one."""

    @abstractmethod
    def subscription_changed(self) -> None:
        """The subscription has changed."""

    @abstractmethod
    async def _send_leave(self) -> None:
        """Tells the coordinator that this member leaves, whatever it answers."""

    async def leave(self, *, is_told: bool = True) -> None:
        """Ends the membership. A static member that closes does not leave: it will be back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._handover.clear()
        if is_told:
            try:
                await self._send_leave()
            except KafkaError as error:
                log.debug("The member could not leave group %s: %s", self._group_id, error)
        self._forget_membership()

    def _forget_membership(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.watched_topics = frozenset()

    def _on_metadata(self) -> None:
        if isinstance(self._subscription.pattern, re.Pattern):
            excludes_internal = self._settings.exclude_internal_topics
            names = [
                name
                for name, topic in self._cluster.topics.items()
                if topic.error is None and not (topic.is_internal and excludes_internal)
            ]
            if self._subscription.match_topics(names) and self.is_started:
                self.subscription_changed()

    def _is_poll_overdue(self) -> bool:
        return self._handover.poll_delay_s() * 1000 > self._settings.max_poll_interval_ms

    def _warn_of_poll(self) -> None:
        log.warning(
            "group %s: poll() was not called for more than max.poll.interval.ms=%d, so this consumer leaves the"
            " group until it is. Handle fewer records at a time (max.poll.records) or raise the interval",
            self._group_id,
            self._settings.max_poll_interval_ms,
        )

    async def _back_off(self, failures: int) -> None:
        settings = self._settings
        backoff_ms = backoff_ms_after(
            failures,
            first_ms=settings.retry_backoff_ms,
            max_ms=settings.retry_backoff_max_ms,
            chooser=self._random,
        )
        await asyncio.sleep(backoff_ms / 1000)

    async def _ask(self, change: Change, partitions: Iterable[TopicPartition]) -> None:
        await self._handover.ask(change, partitions)

    def _begin(self, *work: Callable[[], object]) -> None:
        assert not self._tasks
        self._tasks = [self._loop.create_task(each()) for each in work]  # type: ignore[arg-type]
        for task in self._tasks:
            task.add_done_callback(_tell_of_end)


def _tell_of_end(task: asyncio.Task[None]) -> None:
    """A member's task never ends by itself: an exception here is a bug."""
    if not task.cancelled() and task.exception() is not None:
        log.error("a member of a group has failed in an unforeseen way", exc_info=task.exception())
