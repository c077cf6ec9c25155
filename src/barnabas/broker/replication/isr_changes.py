"""Sends the leaders' changes of in-sync replicas to the controller, and applies its answers.

One AlterPartition request is under way at a time. It carries all changes that wait, at most one for each partition. A
request that fails as a whole is repeated, without end: until the controller answers, a proposed change stays pending,
and the next LeaderAndIsr request makes it void.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.replica_manager import IsrMetrics
from barnabas.errors import NONE, KafkaError, StaleBrokerEpoch
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from barnabas.protocol.messages.alter_partition_response import AlterPartitionResponse
from barnabas.protocol.messages.alter_partition_response import PartitionData as PartitionAnswer
from barnabas.replication.isr_change import IsrChange

log = logging.getLogger(__name__)

RETRY_S: Final = 0.05
# After an error that is not the controller's.
FAILURE_RETRY_S: Final = 1.0
REQUEST_TIMEOUT_MS: Final = 30_000
# Of one request. The rest goes with the next one.
CHANGES_MAX: Final = 10_000

VERSION_WITH_TOPIC_IDS: Final = 3
VERSION_WITHOUT_TOPIC_IDS: Final = 1


class ControllerLink(Protocol):
    async def ask(
        self, api_name: str, request: Message, *, timeout_ms: float, version: int | None = None
    ) -> Any: ...


class IsrChanges:
    """`broker_epoch` returns that of the current registration. Without `has_topic_ids`, topics go by their names."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        controller: ControllerLink,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        metrics: IsrMetrics,
        *,
        has_topic_ids: bool = True,
    ) -> None:
        self._metrics = metrics
        self._loop = loop
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._has_topic_ids = has_topic_ids
        self._waiting: dict[TopicPartition, tuple[Partition, IsrChange]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._is_closed = False

    def propose(self, partition: Partition, change: IsrChange) -> None:
        """A change of a partition replaces one that waits: that one is void, because each leader proposes one."""
        if self._is_closed:
            return
        log.info(
            "%s: the in-sync replicas are to be %s, in leader epoch %d",
            partition.topic_partition,
            list(change.in_sync),
            change.leader_epoch,
        )
        self._waiting[partition.topic_partition] = (partition, change)
        if self._sending is None:
            self._sending = self._loop.create_task(self._send())

    async def close(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def _send(self) -> None:
        try:
            # Changes of the same moment go together.
            await asyncio.sleep(0)
            while self._waiting:
                await self._send_waiting()
        finally:
            # At once: a change that is proposed before the task has quite ended needs the next one.
            self._sending = None

    async def _send_waiting(self) -> None:
        keys = list(self._waiting)[:CHANGES_MAX]
        changes = {key: self._waiting.pop(key) for key in keys}
        changes = {key: (each, change) for key, (each, change) in changes.items() if each.proposes(change)}
        if not changes:
            return
        wait_s = 0.0
        try:
            if not await self._ask(changes):
                wait_s = RETRY_S
        except Exception:
            # A change that is not sent again would be pending for ever.
            log.exception("Changes of in-sync replicas cannot be sent")
            wait_s = FAILURE_RETRY_S
        for key, waiting in changes.items():
            # What has no answer goes again, unless something newer has come.
            self._waiting.setdefault(key, waiting)
        if self._waiting and (changes or wait_s):
            await asyncio.sleep(wait_s or RETRY_S)

    async def _ask(self, changes: dict[TopicPartition, tuple[Partition, IsrChange]]) -> bool:
        """Removes the changes that have got their answer."""
        names = {partition.topic_id: partition.topic_partition.topic for partition, _ in changes.values()}
        # While the protocol level of a cluster is raised, a topic may not have its id yet.
        has_ids = self._has_topic_ids and all(map(any, names))
        request = self._request(changes, has_ids)
        version = VERSION_WITH_TOPIC_IDS if has_ids else VERSION_WITHOUT_TOPIC_IDS
        try:
            response: AlterPartitionResponse = await self._controller.ask(
                "AlterPartition", request, timeout_ms=REQUEST_TIMEOUT_MS, version=version
            )
        except (KafkaError, OSError) as error:
            log.warning("The controller cannot be asked for changes of in-sync replicas: %s", error)
            return False
        if response.error_code != NONE:
            level = logging.INFO if response.error_code == StaleBrokerEpoch.code else logging.WARNING
            log.log(level, "The controller refuses AlterPartition with code %d", response.error_code)
            return False
        for topic in response.topics:
            name = names.get(topic.topic_id, "") if has_ids else topic.topic_name
            for answer in topic.partitions:
                key = TopicPartition(name, answer.partition_index)
                asked = changes.pop(key, None)
                if asked is not None and self._apply(*asked, answer):
                    changes[key] = asked
        return True

    def _apply(self, partition: Partition, change: IsrChange, answer: PartitionAnswer) -> bool:
        """True if the change is to be sent again."""
        if answer.error_code != NONE:
            self._metrics.failures += 1
            log.warning(
                "The controller refuses in-sync replicas %s of %s with code %d",
                list(change.in_sync),
                partition.topic_partition,
                answer.error_code,
            )
            return partition.isr_refused(change, answer.error_code)
        if not partition.isr_changed(
            change,
            leader_epoch=answer.leader_epoch,
            partition_epoch=answer.partition_epoch,
            in_sync=tuple(map(BrokerId, answer.isr)),
        ):
            self._metrics.failures += 1
        elif len(change.in_sync) > len(change.previous):
            self._metrics.expands += 1
        else:
            self._metrics.shrinks += 1
        return False

    def _request(
        self, changes: Mapping[TopicPartition, tuple[Partition, IsrChange]], has_ids: bool
    ) -> AlterPartitionRequest:
        topics: dict[tuple[str, bytes], TopicData] = {}
        for partition, change in changes.values():
            at = partition.topic_partition
            topic = topics.get((at.topic, partition.topic_id))
            if topic is None:
                topic = TopicData(topic_name=at.topic, topic_id=partition.topic_id)
                topics[at.topic, partition.topic_id] = topic
            topic.partitions.append(_partition_data(at.partition, change, has_ids))
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )


def _partition_data(index: int, change: IsrChange, has_ids: bool) -> PartitionData:
    # In a cluster with ZooKeeper, leaders do not know the broker epochs of their followers.
    with_epochs = [BrokerState(broker_id=each) for each in change.in_sync] if has_ids else []
    return PartitionData(
        partition_index=index,
        leader_epoch=change.leader_epoch,
        new_isr=[] if has_ids else list(change.in_sync),
        new_isr_with_epochs=with_epochs,
        partition_epoch=change.partition_epoch,
    )


def shrink_all(partitions: Iterable[Partition]) -> None:
    """Proposes to remove the replicas that lag. To be called each half of `replica.lag.time.max.ms`."""
    for partition in partitions:
        partition.shrink_isr()
