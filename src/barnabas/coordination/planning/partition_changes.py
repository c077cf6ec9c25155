"""The leader and the replicas of a partition after an election or a reassignment. Nothing is stored here."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from barnabas.coordination.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from barnabas.coordination.planning.topic_creation import check_assignment
from barnabas.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
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


def elected(image: MetadataImage, at: TopicPartition, election: ElectionType) -> PartitionImage:
    """The partition with its new leader. Raises a KafkaError when there is none to elect."""
    topic = image.topics.get(at.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"No such topic as {at.topic}")
    if not 0 <= at.partition < len(topic.partitions):
        raise UnknownTopicOrPartition(f"No such partition as {at}")
    partition = topic.partitions[at.partition]
    if election is ElectionType.PREFERRED:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise ElectionNotNeeded("Leader election not needed for topic partition.")
        if preferred not in partition.isr or preferred not in image.brokers:
            raise PreferredLeaderNotAvailable("The preferred leader was not available.")
        return led_by(partition, preferred, partition.isr)
    if partition.leader != NO_LEADER:
        raise ElectionNotNeeded("Leader election not needed for topic partition.")
    live = [replica for replica in partition.replicas if replica in image.brokers]
    if not live:
        raise EligibleLeadersNotAvailable("Eligible topic partition leaders are not available.")
    in_sync = [replica for replica in live if replica in partition.isr]
    # A leader that was not in sync continues with its records; the others have to follow it.
    return led_by(partition, in_sync[0], partition.isr) if in_sync else led_by(partition, live[0], live[:1])


def reassigned(
    image: MetadataImage,
    at: TopicPartition,
    target: Sequence[int] | None,
    *,
    allow_replication_factor_change: bool = True,
) -> PartitionImage:
    """The partition with these replicas; None would stop a reassignment that is under way.

    Replicas can be put in another order, or taken away from those that are not wanted, and that is done at once. Data
    is not moved to another broker.
    """
    topic = image.topics.get(at.topic)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {at.topic}.")
    if not 0 <= at.partition < len(topic.partitions):
        raise UnknownTopicOrPartition(f"Unable to find partition {at.topic}:{at.partition}.")
    if target is None:
        raise NoReassignmentInProgress("No partition reassignment is in progress.")
    partition = topic.partitions[at.partition]
    check_assignment(image, target, None)
    if not allow_replication_factor_change and len(target) != len(partition.replicas):
        raise InvalidReplicationFactor(
            f"The replication factor is changed from {len(partition.replicas)} to {len(target)}"
        )
    replicas = tuple(map(BrokerId, target))
    for broker in replicas:
        if broker not in partition.isr:
            raise InvalidReplicaAssignment(
                f"Broker {broker} has no replica of {at} in sync, and replicas cannot be moved between brokers yet."
            )
    if replicas == partition.replicas:
        return partition
    isr = tuple(replica for replica in partition.isr if replica in replicas)
    # Brokers take over replicas in a new leader epoch only.
    moved = replace(partition, replicas=replicas)
    return led_by(moved, partition.leader if partition.leader in isr else replicas[0], isr)


def led_by(partition: PartitionImage, leader: BrokerId, isr: Sequence[BrokerId]) -> PartitionImage:
    """The partition in the next leader epoch."""
    return replace(
        partition,
        leader=leader,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        isr=tuple(isr),
        partition_epoch=partition.partition_epoch + 1,
    )
