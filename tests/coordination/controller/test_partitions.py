"""Elections and reassignments on the real embedded store."""

from __future__ import annotations

from pathlib import Path

from barnabas.coordination.metadata.tree import encode_uuid
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.errors import (
    ElectionNotNeeded,
    InvalidReplicaAssignment,
    UnknownTopicOrPartition,
)
from barnabas.model import TopicPartition
from tests.coordination.controllers import Cluster, run

ORDERS = TopicPartition("orders", 0)
UNCLEAN = ElectionType.UNCLEAN


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
