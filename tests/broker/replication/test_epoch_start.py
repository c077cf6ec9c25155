"""A leader assigns the start of its epoch when it becomes leader. A follower takes epochs from batches alone."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from barnabas.broker.replication.delayed import DelayedOperations
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.waiting.timing_wheel import Timer
from barnabas.coordination.metadata.image import PartitionImage, TopicImage
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from tests.log.partitions import Disk, batch

TOPIC_ID = bytes(range(16))
US, OTHER = BrokerId(1), BrokerId(2)
PARTITION = TopicPartition("topic", 0)


def topic(leader: BrokerId, leader_epoch: int) -> TopicImage:
    image = PartitionImage(
        leader=leader, leader_epoch=LeaderEpoch(leader_epoch), replicas=(US, OTHER), isr=(US, OTHER)
    )
    return TopicImage(name="topic", id=TOPIC_ID, partitions=(image,))


async def opened(disk: Disk, first: TopicImage, *later: TopicImage) -> tuple[ReplicaManager, PartitionLog]:
    """A manager whose log was opened for the first image, while the later ones arrived."""

    def open_log(partition: TopicPartition, topic_id: bytes) -> PartitionLog:
        assert (partition, topic_id) == (PARTITION, TOPIC_ID)
        return disk.open()

    with ThreadPoolExecutor(1) as executor:
        loop = asyncio.get_running_loop()
        manager = ReplicaManager(US, loop, DelayedOperations(loop, Timer(0)), open_log, open_log, executor)
        for image in (first, *later):
            manager.apply([image])
        await manager.opened(["topic"])
    log = manager.partition("topic", 0).log
    assert log is not None
    return manager, log


def test_a_followers_log_gets_no_epoch_when_it_is_opened() -> None:
    async def run() -> None:
        manager, log = await opened(Disk(), topic(OTHER, 3))
        assert log.leader_epochs == []
        manager.apply([topic(OTHER, 4)])
        assert log.leader_epochs == []
        log.append_as_follower(batch(b"a", b"b", offset=0, epoch=3))
        assert log.leader_epochs == [(3, 0)]

    asyncio.run(run())


def test_a_leader_assigns_its_epoch_when_the_log_is_opened() -> None:
    async def run() -> None:
        disk = Disk()
        _, log = await opened(disk, topic(US, 3))
        assert log.leader_epochs == [(3, 0)]
        assert "leader-epoch-checkpoint" in disk.names()

    asyncio.run(run())


def test_a_follower_that_becomes_leader_begins_its_epoch_at_the_log_end() -> None:
    async def run() -> None:
        manager, log = await opened(Disk(), topic(OTHER, 3))
        log.append_as_follower(batch(b"a", b"b", offset=0, epoch=3))
        manager.apply([topic(US, 5)])
        assert log.leader_epochs == [(3, 0), (5, 2)]

    asyncio.run(run())


def test_the_role_may_change_while_the_log_is_opened() -> None:
    async def run() -> None:
        _, log = await opened(Disk(), topic(OTHER, 3), topic(US, 4))
        assert log.leader_epochs == [(4, 0)]
        # The broker did lead in epoch 3, and wrote nothing: the next epoch starts at the same offset.
        _, log = await opened(Disk(), topic(US, 3), topic(OTHER, 4))
        assert log.leader_epochs == [(3, 0)]
        log.append_as_follower(batch(b"a", offset=0, epoch=4))
        assert log.leader_epochs == [(4, 0)]

    asyncio.run(run())
