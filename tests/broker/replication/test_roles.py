"""Roles of a partition: who may give them, what they permit, and how they end."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.replication.partition import ACKS_ALL
from barnabas.broker.replication.replica_manager import EPOCH_DURING_DELETE, NO_EPOCH
from barnabas.broker.replication.replicated import await_replicated
from barnabas.coordination.metadata.image import BrokerImage, PartitionImage, TopicImage
from barnabas.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    StaleControllerEpoch,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from barnabas.model import NO_OFFSET, BrokerId, LeaderEpoch
from barnabas.value import replace
from tests.broker.replication.roles import (
    DEAD,
    LAG_TIME_MAX_MS,
    OTHER,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    US,
    OnePartition,
    role,
    stop_request,
)
from tests.log.partitions import Disk, batch


class Outcome:
    """How an append was replicated: nothing until then."""

    def __init__(self, replica: OnePartition, timeout_ms: int = 1_000) -> None:
        self.errors: list[KafkaError | None] = []
        info = replica.partition.append(batch(b"a"), ACKS_ALL)
        await_replicated(replica.partition, info.last_offset + 1, timeout_ms, self.errors.append)

    async def error(self) -> type[KafkaError] | None:
        await asyncio.sleep(0)
        [error] = self.errors
        return None if error is None else type(error)


def fetch(replica: OnePartition, offset: int, *, start: int = 0, by: BrokerId = OTHER) -> None:
    partition = replica.partition
    follower = partition.follower(by, partition.leader_epoch)
    partition.note_fetch(follower, offset, start, replica.log.log_end_offset)


class TestFences:
    @staticmethod
    def test_a_controller_that_was_replaced() -> None:
        async def run() -> None:
            replica = OnePartition()
            await replica.became(role(US, 1, controller_epoch=7))
            stale = replica.manager.become(role(OTHER, 2, controller_epoch=6))
            assert stale.error_code == StaleControllerEpoch.code
            assert stale.topics[0].partition_errors[0].error_code == StaleControllerEpoch.code
            stopped = replica.manager.stop(stop_request(EPOCH_DURING_DELETE, is_deleted=True))
            assert stopped.error_code == StaleControllerEpoch.code
            assert stopped.partition_errors[0].error_code == StaleControllerEpoch.code
            assert replica.partition.is_leader
            assert replica.partition.leader_epoch == 1
            assert not replica.manager.admit_controller(6)
            assert replica.manager.admit_controller(8)
            assert replica.become(role(OTHER, 2, controller_epoch=7)) == StaleControllerEpoch.code

        asyncio.run(run())

    @staticmethod
    @pytest.mark.parametrize("leader_epoch", [4, 5])
    def test_a_role_of_an_epoch_that_is_over_or_known(leader_epoch: int) -> None:
        async def run() -> None:
            replica = OnePartition()
            partition = await replica.became(role(US, 5))
            assert replica.become(role(OTHER, leader_epoch)) == StaleControllerEpoch.code
            assert partition.leader == US
            assert partition.leader_log() is replica.log

        asyncio.run(run())

    @staticmethod
    def test_a_topic_gets_its_id_later() -> None:
        """As when the protocol level of a cluster is raised: roles that are known come again, with an id."""

        async def run() -> None:
            replica = OnePartition()
            replica.topic_id = bytes(16)
            partition = await replica.became(role(US, 5, topic_id=bytes(16)))
            assert replica.become(role(OTHER, 4)) == StaleControllerEpoch.code
            assert partition.topic_id == bytes(16)
            assert replica.become(role(OTHER, 5)) == 0
            assert (partition.topic_id, replica.log.topic_id) == (TOPIC_ID, TOPIC_ID)
            assert partition.leader_log() is replica.log, "nothing else is taken over"
            assert replica.become(role(US, 5)) == StaleControllerEpoch.code
            assert replica.become(role(US, 6, topic_id=b"f" * 16)) == InconsistentTopicId.code

        asyncio.run(run())

    @staticmethod
    @pytest.mark.parametrize("leader_epoch", [-2, -1])
    @pytest.mark.parametrize("leader", [US, OTHER])
    def test_a_role_without_an_epoch(leader: BrokerId, leader_epoch: int) -> None:
        async def run() -> None:
            replica = OnePartition()
            assert replica.become(role(leader, leader_epoch)) == StaleControllerEpoch.code
            assert replica.manager.find(PARTITION) is None

        asyncio.run(run())

    @staticmethod
    def test_another_topic_of_the_name() -> None:
        async def run() -> None:
            replica = OnePartition()
            await replica.became(role(US, 5))
            assert replica.become(role(US, 6, topic_id=b"f" * 16)) == InconsistentTopicId.code
            assert replica.partition.leader_epoch == 5

        asyncio.run(run())

    @staticmethod
    def test_a_broker_that_is_gone_holds_up_no_high_watermark() -> None:
        async def run() -> None:
            replica = OnePartition()
            without = replica.metadata.image
            with_third = replace(without, brokers={**without.brokers, DEAD: BrokerImage(id=DEAD, epoch=0)})
            replica.metadata.publish(with_third)
            partition = await replica.became(role(US, 1, replicas=(US, OTHER, DEAD), isr=(US, OTHER)))
            fetch(replica, 0, by=DEAD)
            partition.append(batch(b"value"), acks=1)
            fetch(replica, 1)
            # The third replica is caught up by time, so it counts though it is not in sync.
            assert replica.log.high_watermark == 0
            replica.metadata.publish(without)
            replica.manager.follow_brokers(with_third, without)
            assert replica.log.high_watermark == 1

        asyncio.run(run())

    @staticmethod
    def test_another_topic_of_the_name_after_an_absence() -> None:
        async def run() -> None:
            replica = OnePartition()
            await replica.became(role(US, 5))
            old = replica.partition
            await replica.manager.note_absence()
            replica.topic_id = b"f" * 16
            # Its epochs begin again.
            await replica.became(role(US, 0, topic_id=replica.topic_id))
            assert (replica.partition.topic_id, replica.partition.leader_epoch) == (replica.topic_id, 0)
            assert old.leadership is None
            assert replica.become(role(US, 6)) == InconsistentTopicId.code

        asyncio.run(run())

    @staticmethod
    def test_another_topic_of_the_name_after_a_deletion_without_this_replica() -> None:
        """The replica had been removed from the partition, and the controller failed before it had it deleted."""

        async def run() -> None:
            replica = OnePartition()
            await replica.became(role(US, 5))
            without = replica.metadata.image
            image = PartitionImage(leader=OTHER, leader_epoch=LeaderEpoch(6), replicas=(OTHER,), isr=(OTHER,))
            topic = TopicImage(name=TOPIC, id=TOPIC_ID, partitions=(image,))
            replica.manager.follow_topics(without.with_topics([topic]), without)
            replica.topic_id = b"f" * 16
            await replica.became(role(US, 0, topic_id=replica.topic_id))
            assert (replica.partition.topic_id, replica.partition.leader_epoch) == (replica.topic_id, 0)
            # What is said of the earlier topic does not matter to this one.
            replica.manager.follow_topics(without.with_topics([topic]), without)
            assert replica.become(role(US, 6)) == InconsistentTopicId.code

        asyncio.run(run())

    @staticmethod
    def test_a_partition_of_other_brokers() -> None:
        async def run() -> None:
            replica = OnePartition()
            assert replica.become(role(OTHER, 5, replicas=(OTHER,))) == UnknownTopicOrPartition.code
            with pytest.raises(UnknownTopicOrPartition):
                replica.manager.partition(TOPIC, 0)
            image = PartitionImage(leader=OTHER, leader_epoch=LeaderEpoch(5), replicas=(OTHER,), isr=(OTHER,))
            topic = TopicImage(name=TOPIC, id=TOPIC_ID, partitions=(image,))
            replica.metadata.publish(replica.metadata.image.with_topics([topic]))
            with pytest.raises(NotLeaderOrFollower):
                replica.manager.partition(TOPIC, 0)
            for index in (-1, 1):
                with pytest.raises(UnknownTopicOrPartition):
                    replica.manager.partition(TOPIC, index)

        asyncio.run(run())

    @staticmethod
    def test_a_partition_on_a_failed_disk() -> None:
        async def run() -> None:
            replica = OnePartition()
            await replica.became(role(US, 5))
            replica.manager.take_offline("directory", [PARTITION])
            assert replica.become(role(US, 6)) == KafkaStorageError.code
            # Even a wrong epoch does not matter: the disk comes first.
            with pytest.raises(KafkaStorageError):
                replica.partition.leader_log(4)

        asyncio.run(run())


class TestLeaderEpochOfRequests:
    """Kafka compares the epoch first: leadership and the log come after it."""

    @staticmethod
    @pytest.mark.parametrize("leader", [US, OTHER])
    def test_an_epoch_that_differs(leader: int) -> None:
        async def run() -> None:
            replica = OnePartition()
            partition = await replica.became(role(leader, 5))
            with pytest.raises(FencedLeaderEpoch):
                partition.leader_log(4)
            with pytest.raises(UnknownLeaderEpoch):
                partition.leader_log(6)

        asyncio.run(run())

    @staticmethod
    def test_a_follower_does_not_serve() -> None:
        async def run() -> None:
            partition = await OnePartition().became(role(OTHER, 5))
            for epoch in (-1, 5):
                with pytest.raises(NotLeaderOrFollower, match="Broker 2 leads"):
                    partition.leader_log(epoch)

        asyncio.run(run())

    @staticmethod
    def test_a_leader_does_not_serve_before_its_log_is_open() -> None:
        async def run() -> None:
            replica = OnePartition()
            replica.become(role(US, 5))
            with pytest.raises(NotLeaderOrFollower, match="being opened"):
                replica.partition.leader_log(5)
            with pytest.raises(FencedLeaderEpoch):
                replica.partition.leader_log(4)
            await replica.manager.opened([TOPIC])
            assert replica.partition.leader_log(5) is replica.log

        asyncio.run(run())


def test_a_partition_whose_log_cannot_be_opened_is_offline() -> None:
    async def run() -> None:
        replica = OnePartition()
        replica.is_disk_broken = True
        partition = await replica.became(role(US, 5))
        assert partition.is_offline
        with pytest.raises(KafkaStorageError):
            partition.leader_log(5)
        assert replica.stop(stop_request(5)) == KafkaStorageError.code

    asyncio.run(run())


def test_a_leader_that_cannot_write_its_epoch_is_offline() -> None:
    async def run() -> None:
        replica = OnePartition()
        partition = await replica.became(role(US, 5))
        outcome = Outcome(replica)
        replica.log.take_offline("The disk is broken.")
        assert replica.become(role(US, 6)) == KafkaStorageError.code
        assert partition.is_offline
        assert await outcome.error() is KafkaStorageError

    asyncio.run(run())


def test_only_brokers_of_the_assignment_fetch_as_followers() -> None:
    async def run() -> None:
        partition = await OnePartition().became(role(US, 5))
        assert partition.follower(OTHER, 5).broker_id == OTHER
        with pytest.raises(UnknownLeaderEpoch):
            partition.follower(DEAD, 5)
        with pytest.raises(NotLeaderOrFollower):
            partition.follower(DEAD, -1)

    asyncio.run(run())


def test_only_the_first_log_of_a_new_partition_is_made() -> None:
    async def run() -> None:
        replica = OnePartition()
        await replica.became(role(OTHER, 1, is_new=True))
        await replica.became(role(US, 2, is_new=True))
        assert replica.opened_as_new == [True, False]

    asyncio.run(run())


def test_a_role_whose_leader_is_not_alive_may_come_again() -> None:
    async def run() -> None:
        replica = OnePartition()
        await replica.became(role(US, 1))
        partition = await replica.became(role(DEAD, 2))
        with pytest.raises(NotLeaderOrFollower):
            partition.leader_log()
        assert partition.leader_epoch == 1
        await replica.became(role(OTHER, 2))
        assert partition.leader_epoch == 2

    asyncio.run(run())


class TestStop:
    @staticmethod
    @pytest.mark.parametrize("epoch", [5, 6, NO_EPOCH, EPOCH_DURING_DELETE])
    def test_ends_the_role_and_keeps_the_epoch(epoch: int) -> None:
        async def run() -> None:
            replica = OnePartition()
            partition = await replica.became(role(US, 5))
            assert replica.stop(stop_request(epoch)) == 0
            with pytest.raises(NotLeaderOrFollower):
                partition.leader_log()
            assert replica.become(role(US, 5)) == StaleControllerEpoch.code
            await replica.became(role(US, 6))
            assert partition.leader_log() is replica.log

        asyncio.run(run())

    @staticmethod
    def test_an_old_epoch_is_fenced() -> None:
        async def run() -> None:
            replica = OnePartition()
            partition = await replica.became(role(US, 5))
            assert replica.stop(stop_request(4, is_deleted=True)) == FencedLeaderEpoch.code
            assert partition.leader_log() is replica.log

        asyncio.run(run())

    @staticmethod
    def test_a_deleted_partition_is_forgotten() -> None:
        async def run() -> None:
            replica = OnePartition()
            partition = await replica.became(role(US, 5))
            outcome = Outcome(replica)
            assert replica.stop(stop_request(EPOCH_DURING_DELETE, is_deleted=True)) == 0
            assert replica.manager.find(PARTITION) is None
            assert await outcome.error() is NotLeaderOrFollower
            with pytest.raises(NotLeaderOrFollower):
                partition.leader_log()
            # Nothing is known of it any more, and nothing stands in the way of its directory's deletion.
            assert replica.stop(stop_request(EPOCH_DURING_DELETE, is_deleted=True)) == 0

        asyncio.run(run())

    @staticmethod
    def test_the_log_of_a_partition_that_has_gone_is_not_used() -> None:
        async def run() -> None:
            replica = OnePartition()
            replica.become(role(US, 5))
            partition = replica.partition
            replica.stop(stop_request(EPOCH_DURING_DELETE, is_deleted=True))
            await replica.manager.opened([TOPIC])
            assert partition.log is None

        asyncio.run(run())


class TestReplication:
    @staticmethod
    def test_without_followers_everything_is_committed_at_once() -> None:
        async def run() -> None:
            replica = OnePartition(Disk(min_insync_replicas=2))
            partition = await replica.became(role(US, 5, replicas=(US,)))
            info = partition.append(batch(b"a", b"b"), ACKS_ALL)
            assert replica.log.high_watermark == info.last_offset + 1 == 2
            assert partition.has_replicated(2)

        asyncio.run(run())

    @staticmethod
    def test_the_high_watermark_waits_for_the_followers_in_sync() -> None:
        async def run() -> None:
            replica = OnePartition()
            await replica.became(role(US, 5))
            outcome = Outcome(replica)
            assert replica.log.high_watermark == 0
            fetch(replica, 1)
            assert replica.log.high_watermark == 1
            assert await outcome.error() is None

        asyncio.run(run())

    @staticmethod
    def test_a_leader_of_the_next_epoch_may_have_lost_its_followers() -> None:
        async def run() -> None:
            replica = OnePartition()
            await replica.became(role(US, 5))
            outcome = Outcome(replica)
            assert replica.become(role(US, 6, isr=(US,))) == 0
            assert replica.log.high_watermark == 1
            assert await outcome.error() is None

        asyncio.run(run())

    @staticmethod
    def test_too_few_in_sync_take_no_records_and_commit_none() -> None:
        async def run() -> None:
            replica = OnePartition(Disk(min_insync_replicas=2))
            partition = await replica.became(role(US, 5, isr=(US,)))
            with pytest.raises(NotEnoughReplicas):
                partition.append(batch(b"a"), ACKS_ALL)
            partition.append(batch(b"a"), 1)
            assert replica.log.high_watermark == 0

        asyncio.run(run())

    @staticmethod
    def test_too_few_in_sync_after_the_append() -> None:
        async def run() -> None:
            replica = OnePartition(Disk(min_insync_replicas=2))
            await replica.became(role(US, 5))
            outcome = Outcome(replica)
            fetch(replica, 1)
            assert replica.log.high_watermark == 1
            # The follower falls out of sync before the produce request is looked at.
            replica.become(role(US, 6, isr=(US,)))
            assert await outcome.error() is NotEnoughReplicasAfterAppend

        asyncio.run(run())

    @staticmethod
    def test_a_leader_that_returns_may_have_other_records() -> None:
        async def run() -> None:
            replica = OnePartition()
            await replica.became(role(US, 5))
            outcome = Outcome(replica)
            replica.become(role(OTHER, 6))
            replica.become(role(US, 7, replicas=(US,)))
            assert await outcome.error() is NotLeaderOrFollower

        asyncio.run(run())

    @staticmethod
    def test_waiting_has_an_end() -> None:
        async def run() -> None:
            replica = OnePartition()
            await replica.became(role(US, 5))
            outcome = Outcome(replica, timeout_ms=10)
            replica.timer.advance(20)
            assert await outcome.error() is RequestTimedOut
            assert replica.manager.delayed.produces.waiting == 0

        asyncio.run(run())

    @staticmethod
    def test_a_slow_follower_outside_the_isr_holds_nothing_back() -> None:
        async def run() -> None:
            replica = OnePartition()
            partition = await replica.became(role(US, 5, isr=(US,)))
            partition.append(batch(b"a"), 1)
            assert replica.log.high_watermark == 1
            fetch(replica, 0)
            fetch(replica, 1)
            partition.append(batch(b"b"), 1)
            assert replica.log.high_watermark == 1
            replica.disk.clock.advance_ms(LAG_TIME_MAX_MS + 1)
            partition.append(batch(b"c"), 1)
            assert replica.log.high_watermark == 3

        asyncio.run(run())

    @staticmethod
    def test_records_are_deleted_when_all_replicas_have_deleted_them() -> None:
        async def run() -> None:
            replica = OnePartition()
            partition = await replica.became(role(US, 5))
            for _ in range(3):
                partition.append(batch(b"a"), 1)
            fetch(replica, 3)
            assert partition.delete_records(2) == 2
            assert partition.low_watermark() == 0
            fetch(replica, 3, start=2)
            assert partition.low_watermark() == 2
            await replica.became(role(US, 6, replicas=(US,)))
            assert partition.delete_records(3) == partition.low_watermark() == 3

        asyncio.run(run())


def test_an_exchanged_log_keeps_the_leadership() -> None:
    async def run() -> None:
        replica = OnePartition()
        partition = await replica.became(role(US, 5))
        partition.append(batch(b"a"), 1)
        leadership = partition.leadership
        assert leadership is not None
        fetch(replica, 1)
        log = replica.log
        exchanged = replica.manager.exchange_log(partition, lambda at, topic_id: log)
        with pytest.raises(NotLeaderOrFollower):
            partition.leader_log()
        await exchanged
        assert partition.leadership is leadership
        assert leadership.epoch_start_offset == 0
        follower = leadership.find(OTHER)
        assert follower is not None
        assert follower.log_end_offset != NO_OFFSET

    asyncio.run(run())
