"""The coordinators of this broker: one for each partition of `__consumer_offsets` that it leads.

A partition that appears is loaded, one after the other, while requests for its groups are told to come back; one that
goes is unloaded. How many partitions there are is settled when the topic is first seen, as in Apache Kafka: a group
does not move while the broker runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from random import Random
from typing import Final
from uuid import UUID

from barnabas.broker.coordinator_keys import partition_of_key
from barnabas.broker.coordinator_shell import GroupShell
from barnabas.broker.exchange import Exchange
from barnabas.broker.partition import Partition
from barnabas.broker.replica_manager import ReplicaManager, changed_topics
from barnabas.broker.tasks import Tasks
from barnabas.broker.timing_wheel import Timer
from barnabas.clock import Clock
from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.controller import Controller
from barnabas.coordination.image import MetadataImage, TopicImage
from barnabas.errors import CoordinatorNotAvailable, InvalidGroupId, KafkaError, NotCoordinator
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.decision import Caller
from barnabas.groups.settings import GroupSettings
from barnabas.model import TopicPartition
from barnabas.records.layout import CompressionType

log = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"
_MINUTE_MS: Final = 60_000


class GroupRuntime:
    def __init__(
        self,
        controller: Controller,
        replicas: ReplicaManager,
        tasks: Tasks,
        timer: Timer,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._controller = controller
        self._replicas = replicas
        self._tasks = tasks
        self._timer = timer
        self._clock = clock
        self._rng = rng
        self._settings = group_settings(controller.config)
        self._shells: dict[int, GroupShell] = {}
        self._topic_id: bytes | None = None
        self._partition_count = 0
        self._creation_failure = ""

    def begin(self) -> None:
        """Follows the controller's images from now on; partitions follow them before."""
        self._follow(self._controller.image.topics.get(OFFSETS_TOPIC))
        self._controller.add_listener(self._on_image)

    def __iter__(self) -> Iterator[GroupShell]:
        return iter(self._shells.values())

    async def ensure_topic(self) -> None:
        """Has the topic made if there is none. Raises CoordinatorNotAvailable if that cannot be."""
        if OFFSETS_TOPIC in self._controller.image.topics:
            return
        try:
            failed = await self._controller.auto_create_topics([OFFSETS_TOPIC])
            error = failed.get(OFFSETS_TOPIC)
        except KafkaError as failure:
            error = failure
        if error is not None:
            if str(error) != self._creation_failure:
                # Clients only learn that there is no coordinator, and ask again and again.
                self._creation_failure = str(error)
                log.error("groups cannot be used, %s cannot be made: %s", OFFSETS_TOPIC, error)
            raise CoordinatorNotAvailable(str(error))
        await self._replicas.opened([OFFSETS_TOPIC])

    def partition_of(self, group_id: str) -> int:
        """Raises CoordinatorNotAvailable while there is no topic."""
        if not self._partition_count:
            raise CoordinatorNotAvailable(f"there is no {OFFSETS_TOPIC} yet")
        return partition_of_key(group_id, self._partition_count)

    def shell_of(self, group_id: str) -> GroupShell:
        """The coordinator of the group, ready for requests; raises why there is none."""
        return self.shell_at(self.partition_of(group_id) if self._partition_count else -1)

    def shell_at(self, index: int) -> GroupShell:
        """The same by the partition of the topic."""
        shell = self._shells.get(index)
        if shell is None:
            raise NotCoordinator(f"the groups of this partition of {OFFSETS_TOPIC} are not coordinated here")
        shell.check_ready()
        return shell

    def shell_of_named(self, group_id: str) -> GroupShell:
        """The same for requests of members, whose group has a name; others may be about the group without one."""
        if not group_id:
            raise InvalidGroupId("a group with members has a name")
        return self.shell_of(group_id)

    def _on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        if before.topics is after.topics:
            return
        topic = after.topics.get(OFFSETS_TOPIC)
        if topic is not before.topics.get(OFFSETS_TOPIC):
            self._follow(topic)
        _, gone = changed_topics(before, after)
        if gone and self._shells:
            deleted = {
                TopicPartition(each.name, index) for each in gone for index in range(len(each.partitions))
            }
            for shell in self._shells.values():
                shell.forget_partitions(deleted)

    def _follow(self, topic: TopicImage | None) -> None:
        topic_id = None if topic is None else topic.id
        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._partition_count = 0 if topic is None else len(topic.partitions)
        led = self._led_partitions(topic)
        for index, shell in list(self._shells.items()):
            if led.get(index) is not shell.partition:
                del self._shells[index]
                shell.unload()
        new = {index: self._new_shell(led[index]) for index in led if index not in self._shells}
        if new:
            self._shells.update(new)
            self._tasks.start(self._load(new.values()))

    def _led_partitions(self, topic: TopicImage | None) -> dict[int, Partition]:
        if topic is None:
            return {}
        found = (
            self._replicas.find(TopicPartition(OFFSETS_TOPIC, index))
            for index in range(self._partition_count)
        )
        return {
            index: partition
            for index, partition in enumerate(found)
            if partition is not None and partition.is_leader
        }

    def _new_shell(self, partition: Partition) -> GroupShell:
        config = self._controller.config
        return GroupShell(
            partition,
            GroupCoordinator(self._settings, self._new_uuid),
            timer=self._timer,
            waiting=self._replicas.waiting_produces,
            clock=self._clock,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            compression=CompressionType(config.offsets_topic_compression_codec),
        )

    def _new_uuid(self) -> str:
        return str(UUID(int=self._rng.getrandbits(128), version=4))

    async def _load(self, shells: Iterable[GroupShell]) -> None:
        await self._replicas.opened([OFFSETS_TOPIC])
        for shell in shells:
            await shell.load(self._controller.config.offsets_load_buffer_size)


def group_settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offsets_retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
    )


def caller_of(exchange: Exchange) -> Caller:
    """Whoever sent the request, answered by its exchange."""
    return Caller(
        version=exchange.version,
        client_id=exchange.client_id,
        client_host=f"/{exchange.session.host}",
        ticket=exchange.respond,
    )
