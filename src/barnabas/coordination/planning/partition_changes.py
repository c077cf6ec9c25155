"""The leader and the replicas of a partition after an election or a reassignment. Nothing is stored here.

Candidates are tried in the order of the assignment. Each change of the leader or of the in-sync replicas that the
controller makes is a new leader epoch. A function that elects returns None when it finds no leader.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.coordination.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from barnabas.coordination.metadata.tree import LEADER_RECOVERING
from barnabas.coordination.planning.topic_creation import check_assignment
from barnabas.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from barnabas.value import replace


class ElectionType(IntEnum):
    """Codes of the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


class Assignment(NamedTuple):
    """Replicas, and those among them that a reassignment adds and removes."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def target(self) -> tuple[BrokerId, ...]:
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[BrokerId, ...]:
        return tuple(each for each in self.replicas if each not in self.adding)

    def reassigned_to(self, target: Sequence[BrokerId]) -> Assignment:
        """The target comes first, in its own order."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return Assignment(
            replicas,
            tuple(each for each in replicas if each not in origin),
            tuple(each for each in replicas if each not in target),
        )


def assignment_of(partition: PartitionImage) -> Assignment:
    return Assignment(partition.replicas, partition.adding, partition.removing)


def with_assignment(partition: PartitionImage, assignment: Assignment) -> PartitionImage:
    replicas, adding, removing = assignment
    return replace(partition, replicas=replicas, adding=adding, removing=removing)


def elected(
    image: MetadataImage,
    at: TopicPartition,
    election: ElectionType,
    online: Collection[BrokerId] | None = None,
    *,
    recovers: bool = True,
) -> PartitionImage:
    """The partition with its new leader. Raises a KafkaError when there is none to elect.

    `online` are the replicas that can lead, by default those on live brokers. `recovers` as in `offline_election`.
    """
    topic = image.topics.get(at.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"No such topic as {at.topic}")
    if not 0 <= at.partition < len(topic.partitions):
        raise UnknownTopicOrPartition(f"No such partition as {at}")
    partition = topic.partitions[at.partition]
    if online is None:
        online = image.brokers.keys()
    after: PartitionImage | None
    if election is ElectionType.PREFERRED:
        if partition.leader == partition.replicas[0]:
            raise ElectionNotNeeded("Leader election not needed for topic partition.")
        after = preferred_election(partition, online)
        if after is None:
            raise PreferredLeaderNotAvailable("The preferred leader was not available.")
        return after
    if partition.leader in image.brokers:
        raise ElectionNotNeeded("Leader election not needed for topic partition.")
    after = offline_election(partition, online, unclean=True, recovers=recovers)
    if after is None:
        raise EligibleLeadersNotAvailable("Eligible topic partition leaders are not available.")
    return after


def initial_state(partition: PartitionImage, online: Collection[BrokerId]) -> PartitionImage:
    """The first state of a partition: the first live replica leads, and all live ones are in sync."""
    live = tuple(each for each in partition.replicas if each in online)
    if not live:
        return without_state(partition)
    return replace(partition, leader=live[0], isr=live, partition_epoch=0)


def without_state(partition: PartitionImage) -> PartitionImage:
    """A partition none of whose replicas has ever been alive."""
    return replace(
        partition,
        leader=NO_LEADER,
        leader_epoch=LeaderEpoch(0),
        isr=(),
        partition_epoch=-1,
        leader_recovery_state=0,
    )


def offline_election(
    partition: PartitionImage, online: Collection[BrokerId], *, unclean: bool, recovers: bool = True
) -> PartitionImage | None:
    """A leader for a partition that has none. An unclean one starts with its own records and has to recover.

    `recovers` says whether brokers know of that: at old levels of the protocol they do not.
    """
    isr = partition.isr
    for replica in partition.replicas:
        if replica in online and replica in isr:
            return led_by(partition, replica, [each for each in isr if each in online])
    if unclean:
        for replica in partition.replicas:
            if replica in online:
                after = led_by(partition, replica, [replica])
                return replace(after, leader_recovery_state=LEADER_RECOVERING if recovers else 0)
    return None


def preferred_election(partition: PartitionImage, online: Collection[BrokerId]) -> PartitionImage | None:
    preferred = partition.replicas[0]
    if preferred not in online or preferred not in partition.isr:
        return None
    return led_by(partition, preferred, partition.isr)


def reassignment_election(
    partition: PartitionImage, target: Sequence[BrokerId], online: Collection[BrokerId]
) -> PartitionImage | None:
    for replica in target:
        if replica in online and replica in partition.isr:
            return led_by(partition, replica, partition.isr)
    return None


def shutdown_election(
    partition: PartitionImage, online: Collection[BrokerId], leaving: Collection[BrokerId]
) -> PartitionImage | None:
    """Another leader than the brokers that shut down; they leave the in-sync replicas too."""
    for replica in partition.replicas:
        if replica in online and replica in partition.isr and replica not in leaving:
            return led_by(partition, replica, [each for each in partition.isr if each not in leaving])
    return None


def without_replicas(partition: PartitionImage, gone: Collection[BrokerId]) -> PartitionImage:
    """The partition after replicas have gone offline. The last in-sync replica stays: only it has all records."""
    isr = partition.isr
    if not any(each in gone for each in isr):
        return partition
    kept = tuple(each for each in isr if each not in gone) or isr[-1:]
    leader = NO_LEADER if partition.leader in gone else partition.leader
    if (leader, kept) == (partition.leader, isr):
        return partition
    return led_by(partition, leader, kept)


def reassigned(
    image: MetadataImage,
    at: TopicPartition,
    target: Sequence[int] | None,
    *,
    allow_replication_factor_change: bool = True,
) -> Assignment:
    """The assignment with which a reassignment begins. None stops the one that is under way."""
    topic = image.topics.get(at.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {at.topic}.")
    if not 0 <= at.partition < len(topic.partitions):
        raise UnknownTopicOrPartition(f"Unable to find partition {at.topic}:{at.partition}.")
    partition = topic.partitions[at.partition]
    current = assignment_of(partition)
    if target is None:
        if not partition.is_reassigned:
            raise NoReassignmentInProgress("No partition reassignment is in progress.")
        return current.reassigned_to(current.origin)
    # A replica that is there already may be on a broker that is down.
    check_assignment(image, target, None, present=partition.replicas)
    if not allow_replication_factor_change and len(target) != len(current.target):
        raise InvalidReplicationFactor(
            f"The replication factor is changed from {len(current.target)} to {len(target)}"
        )
    return current.reassigned_to(tuple(map(BrokerId, target)))


def led_by(partition: PartitionImage, leader: BrokerId, isr: Sequence[BrokerId]) -> PartitionImage:
    """The partition in the next leader epoch."""
    return replace(
        partition,
        leader=leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        isr=tuple(isr),
        partition_epoch=partition.partition_epoch + 1,
    )
