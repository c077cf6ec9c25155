"""Reassignments: nodes and roles of each phase, replacing and cancelling, and their end by another controller."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.coordination.metadata.tree import encode_reassignment
from barnabas.coordination.planning.topic_creation import NewPartitions
from barnabas.errors import (
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    ReassignmentInProgress,
    UnknownTopicOrPartition,
)
from barnabas.model import BrokerId, TopicPartition
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from tests.coordination.controller.model import ModelCluster, run

T0 = TopicPartition("t", 0)


async def assignment(cluster: ModelCluster, partition: int = 0) -> tuple[Any, Any, Any]:
    node = await cluster.node("/brokers/topics/t")
    index = str(partition)
    adding, removing = node["adding_replicas"].get(index), node["removing_replicas"].get(index)
    return node["partitions"][index], adding, removing


async def reassign(cluster: ModelCluster, target: Sequence[int] | None) -> None:
    assert await cluster.controller.alter_reassignments({T0: target}) == {T0: None}
    await cluster.settle()


def stops(cluster: ModelCluster, broker_id: int) -> list[bool]:
    return [
        request.topic_states[0].partition_states[0].delete_partition
        for request in cluster.brokers[BrokerId(broker_id)].requests
        if isinstance(request, StopReplicaRequest)
    ]


def test_replicas_move_when_the_new_ones_are_in_sync(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await reassign(cluster, [3, 4])
        assert await assignment(cluster) == ([3, 4, 1, 2], [3, 4], [1, 2])
        assert await cluster.state("t") == (1, 1, (1, 2))
        for broker_id, is_new in ((1, False), (2, False), (3, True), (4, True)):
            role = cluster.brokers[BrokerId(broker_id)].roles[T0]
            assert (role.replicas, role.adding_replicas, role.removing_replicas) == (
                [3, 4, 1, 2],
                [3, 4],
                [1, 2],
            )
            assert role.is_new == is_new
        listed = await cluster.controller.list_reassignments(None)
        assert list(listed) == [T0]
        assert await cluster.propose("t", 0, [1, 2, 3]) == 0
        assert (await assignment(cluster))[1] == [3, 4]
        assert await cluster.propose("t", 0, [1, 2, 3, 4]) == 0
        assert await assignment(cluster) == ([3, 4], None, None)
        assert await cluster.state("t") == (3, 2, (3, 4))
        assert cluster.brokers[BrokerId(3)].led == {T0}
        for broker_id in (1, 2):
            assert stops(cluster, broker_id) == [False, True]
            assert T0 not in cluster.brokers[BrokerId(broker_id)].logs
        assert await cluster.controller.list_reassignments([T0]) == {}
        node = await cluster.node("/brokers/topics/t")
        assert (node["adding_replicas"], node["removing_replicas"]) == ({}, {})

    run(scenario, tmp_path, 1, 2, 3, 4)


def test_another_order_needs_no_move(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await reassign(cluster, [2, 1])
        assert await assignment(cluster) == ([2, 1], None, None)
        # The leader stays until the preferred one is elected.
        assert await cluster.state("t") == (1, 1, (1, 2))
        await reassign(cluster, [2])
        assert await assignment(cluster) == ([2], None, None)
        assert await cluster.state("t") == (2, 2, (2,))
        assert stops(cluster, 1) == [False, True]
        before = await cluster.state("t")
        await reassign(cluster, [2])
        assert await cluster.state("t") == before

    run(scenario, tmp_path, 1, 2)


def test_another_order_while_a_replica_is_away(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 1, 3])
        await cluster.kill(3)
        await cluster.settle()
        await reassign(cluster, [1, 2, 3])
        assert await assignment(cluster) == ([1, 2, 3], None, None)
        assert cluster.brokers[BrokerId(1)].roles[T0].replicas == [1, 2, 3]

    run(scenario, tmp_path, 1, 2, 3)


def test_a_reassignment_is_cancelled(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        results = await cluster.controller.alter_reassignments({T0: None})
        assert isinstance(results[T0], NoReassignmentInProgress)
        await reassign(cluster, [1, 3])
        assert await cluster.propose("t", 0, [1, 2, 3]) == 0
        # That was the end of it. Another one is stopped before.
        await reassign(cluster, [1, 4])
        await reassign(cluster, None)
        assert await assignment(cluster) == ([1, 3], None, None)
        assert (await cluster.state("t"))[2] == (1, 3)
        assert stops(cluster, 4) == [False, True]
        role = cluster.brokers[BrokerId(1)].roles[T0]
        assert (role.replicas, role.adding_replicas) == ([1, 3], [])

    run(scenario, tmp_path, 1, 2, 3, 4)


def test_a_reassignment_is_cancelled_while_a_new_replica_leads(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await reassign(cluster, [3, 4])
        assert await cluster.propose("t", 0, [1, 2, 3]) == 0
        await cluster.kill(1)
        assert (await cluster.state("t"))[0] == 3
        await reassign(cluster, None)
        assert await assignment(cluster) == ([1, 2], None, None)
        leader, _, isr = await cluster.state("t")
        assert (leader, isr) == (2, (2,))
        assert cluster.brokers[BrokerId(2)].led == {T0}

    run(scenario, tmp_path, 1, 2, 3, 4)


def test_a_reassignment_is_replaced(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await reassign(cluster, [3, 2])
        await reassign(cluster, [4, 2])
        assert await assignment(cluster) == ([4, 2, 1], [4], [1])
        assert stops(cluster, 3) == [False, True]
        # The answer of the leader to its own state counts, not what others once were.
        assert await cluster.propose("t", 0, [1, 2, 4]) == 0
        assert await cluster.state("t") == (4, 3, (2, 4))

    run(scenario, tmp_path, 1, 2, 3, 4)


def test_reassignments_that_cannot_be_are_refused(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        unknown = TopicPartition("none", 0)
        results = await cluster.controller.alter_reassignments({T0: [1, 9], unknown: [1]})
        assert isinstance(results[T0], InvalidReplicaAssignment)
        assert isinstance(results[unknown], UnknownTopicOrPartition)
        assert await assignment(cluster) == ([1, 2], None, None)
        await reassign(cluster, [2, 3])
        (refused,) = await cluster.controller.create_partitions([NewPartitions("t", 2)])
        assert isinstance(refused, ReassignmentInProgress)

    run(scenario, tmp_path, 1, 2, 3)


def test_another_controller_continues_a_reassignment(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3], [3, 2])
        await reassign(cluster, [4, 3])
        await cluster.kill(1)
        assert await assignment(cluster) == ([4, 3, 2], [4], [2])
        assert await assignment(cluster, 1) == ([3, 2], None, None)
        role = cluster.brokers[BrokerId(4)].roles[T0]
        assert role.adding_replicas == [4]
        assert await cluster.propose("t", 0, [2, 3, 4]) == 0
        assert await assignment(cluster) == ([4, 3], None, None)

    run(scenario, tmp_path, 1, 2, 3, 4)


def test_a_reassignment_that_caught_up_without_a_controller_ends_with_the_next(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [2, 3])
        await reassign(cluster, [3, 4])
        state = await cluster.node("/brokers/topics/t/partitions/0/state")
        # As a broker of an old release does it, without telling the controller.
        data = str({**state, "isr": [2, 3, 4]}).replace("'", '"').encode()
        await cluster.session.set("/brokers/topics/t/partitions/0/state", data)
        await cluster.kill(1)
        assert await assignment(cluster) == ([3, 4], None, None)
        assert (await cluster.state("t"))[::2] == (3, (3, 4))

    run(scenario, tmp_path, 1, 2, 3, 4)


def test_a_new_replica_that_dies_comes_back(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        await reassign(cluster, [1, 3])
        await cluster.kill(3)
        assert await assignment(cluster) == ([1, 3, 2], [3], [2])
        broker = await cluster.start_broker(3)
        assert broker.roles[T0].leader == 1
        assert await cluster.propose("t", 0, [1, 2, 3]) == 0
        assert await assignment(cluster) == ([1, 3], None, None)

    run(scenario, tmp_path, 1, 2, 3)


def test_many_partitions_of_a_topic_move_together(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        count = 30
        await cluster.create("t", *[[1, 2]] * count)
        before = len(cluster.brokers[BrokerId(3)].requests)
        targets = {TopicPartition("t", index): [2, 3] for index in range(count)}
        await cluster.controller.alter_reassignments(targets)
        await cluster.settle()
        roles = [
            each
            for each in cluster.brokers[BrokerId(3)].requests[before:]
            if isinstance(each, LeaderAndIsrRequest)
        ]
        assert [len(each.topic_states[0].partition_states) for each in roles] == [count]

    run(scenario, tmp_path, 1, 2, 3)


def test_older_tools_reassign_by_a_node(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        unknown = TopicPartition("none", 0)
        data = encode_reassignment({T0: [3, 2], unknown: [1]})
        await cluster.session.create("/admin/reassign_partitions", data)
        await cluster.settle()
        assert await assignment(cluster) == ([3, 2, 1], [3], [1])
        # What cannot be done is taken out, what is under way stays.
        left = await cluster.node("/admin/reassign_partitions")
        assert left["partitions"] == [{"topic": "t", "partition": 0, "replicas": [3, 2]}]
        assert await cluster.propose("t", 0, [1, 2, 3]) == 0
        assert await assignment(cluster) == ([3, 2], None, None)
        assert await cluster.node("/admin/reassign_partitions") is None
        # The next one is seen too, by the next controller.
        await cluster.session.create("/admin/reassign_partitions", encode_reassignment({T0: [2]}))
        await cluster.settle()
        assert await assignment(cluster) == ([2], None, None)

    run(scenario, tmp_path, 1, 2, 3)
