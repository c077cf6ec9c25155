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
from barnabas.coordination.planning.partition_changes import (
    ElectionType,
    elected,
    offline_election,
    reassigned,
    with_assignment,
    without_replicas,
)
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


def test_a_reassignment_has_the_replicas_of_both_ends() -> None:
    image = image_of(partition(0, (0, 1), (0, 1)))
    assert reassigned(image, ORDERS, [1, 0]) == ((1, 0), (), ())
    assert reassigned(image, ORDERS, [1]) == ((1, 0), (), (0,))
    begun = reassigned(image, ORDERS, [2, 1])
    assert (begun.target, begun.origin) == ((2, 1), (1, 0))
    assert begun == ((2, 1, 0), (2,), (0,))


def test_a_reassignment_can_be_replaced_and_cancelled() -> None:
    first = reassigned(image_of(partition(0, (0, 1), (0, 1))), ORDERS, [2, 1])
    image = image_of(with_assignment(partition(0, (0, 1), (0, 1)), first), (0, 1, 2, 3))
    # The replicas before the first reassignment count, in the order that is left of them.
    assert reassigned(image, ORDERS, [3, 1]) == ((3, 1, 0), (3,), (0,))
    assert reassigned(image, ORDERS, None) == ((1, 0), (), ())
    # A replica that is there already may be on a broker that is down.
    image = image_of(with_assignment(partition(0, (0, 1), (0, 1)), first), (0, 3))
    assert reassigned(image, ORDERS, [1, 3]) == ((1, 3, 0), (3,), (0,))


def ids(*brokers: int) -> list[BrokerId]:
    return list(map(BrokerId, brokers))


def test_replicas_that_go_offline_leave_the_in_sync_ones_but_for_the_last() -> None:
    before = partition(0, (0, 1, 2), (2, 0, 1))
    after = without_replicas(before, ids(1))
    assert (after.leader, after.isr, after.leader_epoch) == (0, (2, 0), 6)
    after = without_replicas(before, ids(0, 1))
    assert (after.leader, after.isr, after.leader_epoch) == (-1, (2,), 6)
    assert without_replicas(before, ids(0, 1, 2)).isr == (1,)
    alone = partition(-1, (0, 1), (1,))
    assert without_replicas(alone, ids(1)) is alone
    assert without_replicas(before, ids(5)) is before


def test_an_unclean_leader_has_to_recover() -> None:
    after = offline_election(partition(-1, (0, 1), (1,)), ids(0), unclean=True)
    assert after is not None
    assert (after.leader, after.isr, after.leader_recovery_state) == (0, (0,), 1)
    assert offline_election(partition(-1, (0, 1), (1,)), ids(0), unclean=False) is None
    # A clean one keeps the state of the one before.
    again = offline_election(after, ids(0), unclean=True)
    assert again is not None
    assert (again.isr, again.leader_recovery_state) == ((0,), 1)


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
    with pytest.raises(InvalidReplicationFactor, match="The replication factor is changed from 2 to 1"):
        reassigned(image, ORDERS, [0], allow_replication_factor_change=False)
