"""A controller's requests about roles, and a broker's one partition to send them to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from barnabas.broker.replication.delayed import DelayedOperations
from barnabas.broker.replication.partition import Partition, PartitionContext
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.waiting.timing_wheel import Timer
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.image import BrokerImage, MetadataImage
from barnabas.errors import KafkaStorageError
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.protocol.messages.leader_and_isr_response import LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tests.log.partitions import Disk

TOPIC = "topic"
TOPIC_ID = bytes(range(16))
PARTITION = TopicPartition(TOPIC, 0)
LAG_TIME_MAX_MS = 30_000
US, OTHER, DEAD = BrokerId(1), BrokerId(2), BrokerId(3)


class OnePartition:
    """The replica manager of broker 1, which has one partition. Brokers 1 and 2 are alive."""

    def __init__(
        self, disk: Disk | None = None, executor: Executor | None = None, topic: str = TOPIC
    ) -> None:
        self.topic_partition = TopicPartition(topic, 0)
        self.disk = disk or Disk()
        loop = asyncio.get_running_loop()
        self.timer = Timer(0)
        brokers = {each: BrokerImage(id=each, epoch=0) for each in (US, OTHER)}
        self.metadata = MetadataCache(MetadataImage(cluster_id="cluster", controller_id=US, brokers=brokers))
        context = PartitionContext(
            US, self.disk.clock, DelayedOperations(loop, self.timer), self.metadata, LAG_TIME_MAX_MS
        )
        self._executor = executor or ThreadPoolExecutor(1)
        # Whether logs were opened as those of new partitions, one after the other.
        self.opened_as_new: list[bool] = []
        self.is_disk_broken = False
        self.topic_id = TOPIC_ID
        self._log: PartitionLog | None = None
        self.manager = ReplicaManager(context, loop, self._open, self._make, self._executor)

    def _open(self, partition: TopicPartition, topic_id: bytes, *, is_new: bool = False) -> PartitionLog:
        assert (partition, topic_id) == (self.topic_partition, self.topic_id)
        self.opened_as_new.append(is_new)
        if self.is_disk_broken:
            raise KafkaStorageError("The disk is broken.")
        if self._log is None:
            self._log = self.disk.open()
        return self._log

    def _make(self, partition: TopicPartition, topic_id: bytes) -> PartitionLog:
        return self._open(partition, topic_id, is_new=True)

    def become(self, request: LeaderAndIsrRequest) -> int:
        """Kafka's code of the error; the log may still be opened."""
        return code_of(self.manager.become(request))

    async def became(self, request: LeaderAndIsrRequest) -> Partition:
        assert self.become(request) == 0
        await self.manager.opened([self.topic_partition.topic])
        return self.partition

    def stop(self, request: StopReplicaRequest) -> int:
        [answer] = self.manager.stop(request).partition_errors
        return answer.error_code

    @property
    def partition(self) -> Partition:
        return self.manager.partition(*self.topic_partition)

    @property
    def log(self) -> PartitionLog:
        log = self.partition.log
        assert log is not None
        return log


def role(
    leader: int,
    leader_epoch: int,
    *,
    replicas: Sequence[int] = (US, OTHER),
    isr: Sequence[int] | None = None,
    controller_epoch: int = 1,
    topic: str = TOPIC,
    topic_id: bytes = TOPIC_ID,
    index: int = 0,
    is_new: bool = False,
) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        partition_index=index,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(replicas if isr is None else isr),
        replicas=list(replicas),
        is_new=is_new,
    )
    states = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])
    return LeaderAndIsrRequest(controller_epoch=controller_epoch, topic_states=[states])


def code_of(response: LeaderAndIsrResponse) -> int:
    [topic] = response.topics
    [partition] = topic.partition_errors
    return partition.error_code


def stop_request(
    leader_epoch: int, *, is_deleted: bool = False, controller_epoch: int = 1, topic: str = TOPIC
) -> StopReplicaRequest:
    state = StopReplicaPartitionState(
        partition_index=0, leader_epoch=leader_epoch, delete_partition=is_deleted
    )
    return StopReplicaRequest(
        controller_epoch=controller_epoch,
        topic_states=[StopReplicaTopicState(topic_name=topic, partition_states=[state])],
    )


def change_replicas(
    manager: ReplicaManager, partition: Partition, replicas: Sequence[int], isr: Sequence[int] | None = None
) -> None:
    """Gives a partition that this broker leads other replicas in the next leader epoch."""
    request = role(
        manager.broker_id,
        partition.leader_epoch + 1,
        replicas=replicas,
        isr=isr,
        controller_epoch=manager.controller_epoch,
        topic=partition.topic_partition.topic,
        topic_id=partition.topic_id,
        index=partition.topic_partition.partition,
    )
    assert code_of(manager.become(request)) == 0
