"""Where replicas are placed, who leads after an election, and what a reassignment does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordination.metadata.identity import random_id
from barnabas.coordination.metadata.image import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from barnabas.coordination.metadata.tree import encode_uuid
from barnabas.coordination.planning.partition_changes import ElectionType, elected, reassigned
from barnabas.coordination.planning.placement import place_replicas
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
from tests.coordination.controllers import Cluster, run


class Draws(Random):
    """A random source whose every draw is known."""

    def __init__(self, *draws: int) -> None:
        super().__init__(0)
        self._draws = list(draws)

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return self._draws.pop(0)


def brokers(*racks: str | None) -> list[BrokerImage]:
    return [BrokerImage(id=BrokerId(index), epoch=0, rack=rack) for index, rack in enumerate(racks)]


def test_replicas_go_round_and_shift() -> None:
    """Kafka's own example: ten partitions on five brokers."""
    placed = place_replicas(brokers(*[None] * 5), 10, 3, rng=Draws(0, 0))
    assert placed == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_replicas_spread_over_racks() -> None:
    """Brokers 0 to 5 in racks 1, 3, 3, 2, 2, 1, as in Kafka's tests of the same rule."""
    placed = place_replicas(brokers("r1", "r3", "r3", "r2", "r2", "r1"), 7, 3, rng=Draws(0, 0))
    assert placed == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


def test_later_partitions_go_on_with_the_round() -> None:
    all_at_once = place_replicas(brokers(None, None, None), 6, 2, rng=Draws(1, 1))
    later = place_replicas(brokers(None, None, None), 2, 2, rng=Draws(1, 1), first_partition=1)
    assert later == all_at_once[1:3]


def test_more_replicas_than_brokers_are_refused() -> None:
    for count in (0, 2):
        with pytest.raises(
            InvalidReplicationFactor, match=f"factor of 3 cannot be reached because only {count} "
        ):
            place_replicas(brokers(*[None] * count), 1, 3, rng=Random(0))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    racks=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=9),
    has_racks=st.booleans(),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_placement_is_fair(racks: list[str], has_racks: bool, partitions: int, data: st.DataObject) -> None:
    cluster = brokers(*(racks if has_racks else [None] * len(racks)))
    replication_factor = data.draw(st.integers(1, len(cluster)))
    placed = place_replicas(
        cluster, partitions, replication_factor, rng=Random(data.draw(st.integers(0, 99)))
    )
    assert len(placed) == partitions
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker.id] for broker in cluster) <= 1
    for replicas in placed:
        assert len(set(replicas)) == replication_factor
        if has_racks:
            used = {racks[broker] for broker in replicas}
            assert len(used) == min(replication_factor, len(set(racks)))


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


def test_one_broker_answers_elections_and_reassignments(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders", 2)
        before, tree = cluster.image, await cluster.tree()
        unknown = TopicPartition("orders", 2)
        for election in ElectionType:
            elections = await cluster.controller.elect_leaders([ORDERS, unknown, ORDERS], election)
            assert isinstance(elections[ORDERS], ElectionNotNeeded)
            assert str(elections[unknown]) == "No such partition as orders-2"
        reassignments = await cluster.controller.alter_reassignments(
            {ORDERS: [0], TopicPartition("orders", 1): [3], unknown: [0]}
        )
        assert reassignments[ORDERS] is None
        assert isinstance(reassignments[TopicPartition("orders", 1)], InvalidReplicaAssignment)
        assert isinstance(reassignments[unknown], UnknownTopicOrPartition)
        assert cluster.image is before
        assert await cluster.tree() == tree

    run(scenario, tmp_path)


def test_changes_of_partitions_are_stored(tmp_path: Path) -> None:
    """A topic that once lived on two brokers moves to the one that is left."""

    async def scenario(cluster: Cluster) -> None:
        topic = await cluster.create("orders", 2)
        node = (
            b'{"version":3,"partitions":{"0":[5,0],"1":[0,5]},"topic_id":"%s"}'
            % encode_uuid(topic.id).encode()
        )
        await cluster.session.set("/brokers/topics/orders", node)
        for index, leader in enumerate((b"5", b"-1")):
            state = b'{"controller_epoch":1,"leader":%s,"version":1,"leader_epoch":3,"isr":[5%s]}'
            path = f"/brokers/topics/orders/partitions/{index}/state"
            await cluster.session.set(path, state % (leader, b",0" if index == 0 else b""))
        await cluster.restart()
        led, leaderless = cluster.image.topics["orders"].partitions
        assert (led.leader, led.leader_epoch, leaderless.leader) == (0, 4, -1)

        second = TopicPartition("orders", 1)
        assert await cluster.controller.elect_leaders([second], UNCLEAN) == {second: None}
        assert await cluster.controller.alter_reassignments({ORDERS: [0], second: [0]}) == {
            ORDERS: None,
            second: None,
        }
        led, risen = cluster.image.topics["orders"].partitions
        assert (led.replicas, led.isr, led.leader, led.leader_epoch) == ((0,), (0,), 0, 5)
        assert (risen.replicas, risen.isr, risen.leader, risen.leader_epoch) == ((0,), (0,), 0, 5)
        image = cluster.image
        assert (await cluster.restart()).image.topics == image.topics

    run(scenario, tmp_path)


def test_ids_are_version_4_and_never_begin_with_a_dash() -> None:
    rng = Random(3)
    ids = {random_id(rng) for _ in range(500)}
    assert len(ids) == 500
    for each in ids:
        assert each[6] >> 4 == 4
        assert each[8] >> 6 == 2
        assert encode_uuid(each)[0] != "-"
