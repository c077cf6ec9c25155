"""Topics that others change in the store, without the controller: more partitions, or no topic any more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.model import BrokerId, TopicPartition
from tests.coordination.controller.model import ModelCluster, run

PATH = "/brokers/topics/t"


async def add_partition(cluster: ModelCluster, replicas: list[int], *, with_id: bool = True) -> None:
    node: dict[str, Any] = await cluster.node(PATH)
    node["partitions"][str(len(node["partitions"]))] = replicas
    if not with_id:
        node = {"version": 1, "partitions": node["partitions"]}
    await cluster.session.set(PATH, json.dumps(node).encode())
    await cluster.settle()


@pytest.mark.parametrize("with_id", [True, False])
@pytest.mark.parametrize("takes_over", [False, True])
def test_partitions_that_the_node_of_a_topic_has_more(
    tmp_path: Path, with_id: bool, takes_over: bool
) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        topic_id = (await cluster.node(PATH))["topic_id"]
        if takes_over:
            # The watches are those of the next controller then.
            await cluster.kill(1)
            await cluster.start_broker(1)
        await add_partition(cluster, [2, 3], with_id=with_id)
        await add_partition(cluster, [3, 2], with_id=with_id)
        assert await cluster.state("t", 1) == (2, 0, (2, 3))
        assert await cluster.state("t", 2) == (3, 0, (3, 2))
        node = await cluster.node(PATH)
        assert node["topic_id"] == topic_id
        assert node["partitions"] == {"0": [1, 2], "1": [2, 3], "2": [3, 2]}
        for broker in cluster.brokers.values():
            assert broker.metadata[TopicPartition("t", 1)] == 2
            assert broker.metadata[TopicPartition("t", 2)] == 3
        assert cluster.brokers[BrokerId(3)].roles[TopicPartition("t", 1)].leader == 2

    run(scenario, tmp_path, 1, 2, 3, zookeeper_connect="model")


def test_a_topic_that_is_being_deleted_does_not_grow(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 3])
        await cluster.kill(3)
        await cluster.controller.delete_topics(["t"])
        await cluster.settle()
        before = await cluster.node(PATH)
        await add_partition(cluster, [1, 2])
        assert await cluster.node(PATH) == before
        await cluster.start_broker(3)
        assert await cluster.node(PATH) is None

    run(scenario, tmp_path, 1, 2, 3, zookeeper_connect="model")


def test_a_node_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        good, _ = await cluster.session.get(PATH)
        for bad in (b"{", b'{"version":1,"partitions":{"0":[1,2],"2":[1]}}'):
            await cluster.session.set(PATH, bad)
            await cluster.settle()
        await cluster.session.set(PATH, good)
        await add_partition(cluster, [2, 1])
        assert await cluster.state("t", 1) == (2, 0, (2, 1))

    run(scenario, tmp_path, 1, 2, zookeeper_connect="model")


def test_a_topic_that_somebody_has_removed_is_forgotten(tmp_path: Path) -> None:
    async def scenario(cluster: ModelCluster) -> None:
        await cluster.create("t", [1, 2])
        for path in (f"{PATH}/partitions/0/state", f"{PATH}/partitions/0", f"{PATH}/partitions", PATH):
            await cluster.session.delete(path)
        await cluster.settle()
        assert cluster.controller.counts().topics == 0
        await cluster.kill(2)
        assert cluster.controller.counts().offline_partitions == 0

    run(scenario, tmp_path, 1, 2, zookeeper_connect="model")
