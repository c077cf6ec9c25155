"""Coordinators of one partition whose leader changes at any moment, on one event loop and without threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from random import Random
from typing import Any

from barnabas.broker.coordinators.group_runtime import OFFSETS_TOPIC, GroupRuntime
from barnabas.broker.coordinators.group_shell import GroupShell
from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.coordinators.runtime import Surroundings
from barnabas.broker.coordinators.transaction_runtime import TransactionRuntime
from barnabas.broker.coordinators.transaction_shell import MarkersWritten
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.metadata.image import PartitionImage, TopicImage
from barnabas.errors import KafkaError
from barnabas.groups.caller import Caller
from barnabas.model import LeaderEpoch, ProducerId, TopicPartition
from tests.broker.replication.roles import OTHER, TOPIC_ID, US, OnePartition, role, stop_request
from tests.log.partitions import Disk

SETTINGS = {
    "group.initial.rebalance.delay.ms": "600000",
    # Every batch is read by itself: roles change in between.
    "offsets.load.buffer.size": "1",
    "transaction.state.log.load.buffer.size": "1",
}


class Immediately(Executor):
    """Runs work where it is submitted, so that a seed decides everything. Its result still comes later."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


class Moving:
    """Broker 1 has a replica of the only partition of a coordinator's topic, and broker 2 the other one."""

    def __init__(self, topic: str = OFFSETS_TOPIC) -> None:
        self.topic = topic
        self.executor = Immediately()
        # Small segments, so that a load reads several files.
        self.replica = OnePartition(Disk(segment_bytes=2_000), self.executor, topic)
        self.epoch = 0
        # Why the topic cannot be created.
        self.creation_error: KafkaError | None = None
        self.scheduling = Scheduling(asyncio.get_running_loop(), self.replica.disk.clock, self.executor)
        self.surroundings = Surroundings(
            self.replica.metadata,
            LiveSettings(BrokerConfig(SETTINGS)),
            self._create_topics,
            self.replica.manager,
            self.scheduling,
        )

    async def _create_topics(self, names: Iterable[str]) -> Mapping[str, KafkaError]:
        return {} if self.creation_error is None else dict.fromkeys(names, self.creation_error)

    def show_topic(self) -> None:
        """UpdateMetadata: the topic is known."""
        partition = PartitionImage(
            leader=US, leader_epoch=LeaderEpoch(self.epoch), replicas=(US, OTHER), isr=(US, OTHER)
        )
        topic = TopicImage(name=self.topic, id=TOPIC_ID, partitions=(partition,))
        cache = self.replica.metadata
        cache.publish(replace(cache.image, topics={self.topic: topic}))

    def lead(self) -> None:
        """LeaderAndIsr: this broker leads, or goes on leading in the next epoch."""
        self.epoch += 1
        assert self.replica.become(role(US, self.epoch, topic=self.topic)) == 0

    def follow(self) -> None:
        self.epoch += 1
        assert self.replica.become(role(OTHER, self.epoch, topic=self.topic)) == 0
        self._drop_uncommitted()

    def stop(self) -> None:
        assert self.replica.stop(stop_request(self.epoch, topic=self.topic)) == 0

    def exchange(self) -> bool:
        """The log is exchanged for one in another log directory, as far as this broker knows; if it can be."""
        manager, partition = self.replica.manager, self.replica.partition
        log = partition.log
        if log is None or not manager.can_exchange_log(partition):
            return False
        manager.exchange_log(partition, lambda at, topic_id: log)
        return True

    def _drop_uncommitted(self) -> None:
        """Broker 2 has only what is committed."""
        log = self.replica.partition.log
        if log is not None:
            log.truncate_to(log.high_watermark)

    def commit(self, share: float = 1.0) -> None:
        """Broker 2 writes part of what it lacks, if this broker leads."""
        partition = self.replica.partition
        log = partition.log
        if log is None or partition.leadership is None:
            return
        lacking = log.log_end_offset - log.high_watermark
        log.advance_high_watermark(log.high_watermark + round(share * lacking))
        partition.delayed.note_change(partition.topic_partition)

    async def settle(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self.scheduling.tasks.stop()
        self.scheduling.timer.close()


def groups_of(moving: Moving, rng: Random) -> GroupRuntime:
    runtime = GroupRuntime(moving.surroundings, rng)
    runtime.begin()
    return runtime


def ready(runtime: GroupRuntime) -> GroupShell | None:
    try:
        return runtime.shell_at(0)
    except KafkaError:
        return None


class Blocks:
    async def allocate(self) -> range:
        return range(1_000)

    def raise_to(self, next_id: ProducerId) -> None:
        pass


class NoMarkers:
    def write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        partitions: Iterable[TopicPartition],
        then: MarkersWritten,
        *,
        transaction_version: int,
    ) -> None:
        raise AssertionError("no transaction has partitions")


async def transactions_of(moving: Moving) -> TransactionRuntime:
    producer_ids = ProducerIds(Blocks(), moving.scheduling.tasks)
    await producer_ids.ensure()
    runtime = TransactionRuntime(moving.surroundings, NoMarkers(), producer_ids)
    runtime.begin()
    return runtime


class Asked:
    """One request, and its one answer."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def caller(self, version: int) -> Caller:
        return Caller(version=version, client_id="client", answer=self.answers.append)

    @property
    def answer(self) -> Any:
        [answer] = self.answers
        return answer
