"""Who leads after an election, and what a reassignment does."""

from __future__ import annotations

import pytest

from barnabas.coordination.metadata.image import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from barnabas.coordination.planning.partition_changes import ElectionType, elected, reassigned
from barnabas.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KafkaError,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition


def image_of(partition: PartitionImage, live: tuple[int, ...] = (0, 1, 2)) -> MetadataImage:
    nodes = {BrokerId(each): BrokerImage(id=BrokerId(each), epoch=0) for each in live}
    image = MetadataImage(cluster_id="", controller_id=BrokerId(0), brokers=nodes)
    return image.with_topics([TopicImage(name="orders", id=bytes(15) + b"1", partitions=(partition,))])


def partition(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionImage:
    return PartitionImage(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(5),
        replicas=tuple(map(BrokerId, replicas)),
        isr=tuple(map(BrokerId, isr)),
        partition_epoch=8,
    )


ORDERS = TopicPartition("orders", 0)
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


@pytest.mark.parametrize(
    ("before", "live", "election", "leader", "isr"),
    [
        (partition(1, (0, 1), (1, 0)), (0, 1), PREFERRED, 0, (1, 0)),
        (partition(-1, (0, 1), (0,)), (0, 1), PREFERRED, 0, (0,)),
        (partition(-1, (0, 1), (1,)), (0, 1), UNCLEAN, 1, (1,)),
        (partition(-1, (0, 1), (1,)), (0, 2), UNCLEAN, 0, (0,)),
    ],
)
def test_an_election_makes_a_leader_in_a_new_epoch(
    before: PartitionImage, live: tuple[int, ...], election: ElectionType, leader: int, isr: tuple[int, ...]
) -> None:
    after = elected(image_of(before, live), ORDERS, election)
    assert (after.leader, after.isr, after.replicas) == (leader, isr, before.replicas)
    assert (after.leader_epoch, after.partition_epoch) == (6, 9)


@pytest.mark.parametrize(
    ("before", "live", "election", "error"),
    [
        (partition(0, (0, 1), (0, 1)), (0, 1), PREFERRED, ElectionNotNeeded),
        (partition(1, (0, 1), (1,)), (0, 1), UNCLEAN, ElectionNotNeeded),
        (partition(1, (0, 1), (1,)), (0, 1), PREFERRED, PreferredLeaderNotAvailable),
        (partition(1, (0, 1), (1, 0)), (1,), PREFERRED, PreferredLeaderNotAvailable),
        (partition(NO_LEADER, (0, 1), (0,)), (2,), UNCLEAN, EligibleLeadersNotAvailable),
    ],
)
def test_an_election_without_a_result_says_why(
    before: PartitionImage, live: tuple[int, ...], election: ElectionType, error: type[KafkaError]
) -> None:
    with pytest.raises(error):
        elected(image_of(before, live), ORDERS, election)


def test_a_reassignment_reorders_replicas_at_once() -> None:
    before = partition(0, (0, 1), (0, 1))
    after = reassigned(image_of(before), ORDERS, [1, 0])
    assert after.replicas == (1, 0)
    # The leader stays until somebody asks for the preferred one.
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (0, 6, 9)
    assert reassigned(image_of(before), ORDERS, [0, 1]) == before


def test_a_reassignment_takes_replicas_away_at_once() -> None:
    before = partition(0, (0, 1, 2), (2, 0, 1))
    after = reassigned(image_of(before), ORDERS, [1, 2])
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((1, 2), (2, 1), 1, 6)
    kept = reassigned(image_of(before), ORDERS, [1, 0])
    assert (kept.replicas, kept.isr, kept.leader, kept.leader_epoch) == ((1, 0), (0, 1), 0, 6)


def test_a_reassignment_that_cannot_be_says_why() -> None:
    image = image_of(partition(0, (0, 1), (0, 1)))
    with pytest.raises(UnknownTopicOrPartition, match="Unable to find a topic named clicks"):
        reassigned(image, TopicPartition("clicks", 0), [0])
    for index in (-1, 1):
        with pytest.raises(UnknownTopicOrPartition, match=f"Unable to find partition orders:{index}"):
            reassigned(image, TopicPartition("orders", index), [0])
    with pytest.raises(NoReassignmentInProgress):
        reassigned(image, ORDERS, None)
    with pytest.raises(InvalidReplicaAssignment, match="empty replica list"):
        reassigned(image, ORDERS, [])
    with pytest.raises(InvalidReplicaAssignment, match="broker 9, but no such broker is registered"):
        reassigned(image, ORDERS, [0, 9])
    with pytest.raises(InvalidReplicaAssignment, match="more than once"):
        reassigned(image, ORDERS, [0, 0])
    with pytest.raises(InvalidReplicaAssignment, match="Broker 2 has no replica of orders-0 in sync"):
        reassigned(image, ORDERS, [0, 2])
    with pytest.raises(InvalidReplicationFactor, match="The replication factor is changed from 2 to 1"):
        reassigned(image, ORDERS, [0], allow_replication_factor_change=False)
