"""Brokers that register, lose elections and win them: several sessions on one embedded store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.planning.topic_creation import NewTopic, PlannedTopic
from barnabas.errors import NotController, UnknownServerError
from barnabas.model import BrokerId
from tests.coordination.controllers import BrokerNode, Cluster, run
from tests.waiting import wait_until_async

SECOND = BrokerId(1)


async def start_second(cluster: Cluster) -> BrokerNode:
    return await cluster.start_broker(await cluster.store.connect(), broker_id=SECOND)


def test_a_broker_that_loses_the_election_runs_and_refuses_what_only_the_controller_does(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        second = await start_second(cluster)
        tree = await cluster.tree()
        assert {"/brokers/ids/0", "/brokers/ids/1"} < tree.keys()
        assert json.loads(tree["/controller"])["brokerid"] == 0
        assert tree["/controller_epoch"] == b"1"
        assert (cluster.controller.is_active, second.controller.is_active) == (True, False)
        with pytest.raises(NotController, match="not the correct controller"):
            await second.controller.create_topics([NewTopic("orders")])
        # Both learn from the controller which brokers there are.
        await wait_until_async(lambda: len(second.image.brokers) == 2)
        assert list(cluster.image.brokers) == [0, 1]
        assert (second.image.controller_id, second.image.controller_epoch) == (0, 1)

    run(scenario, tmp_path)


def test_a_broker_that_is_not_the_controller_writes_what_any_broker_may(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        second = await start_second(cluster)
        await wait_until_async(lambda: len(second.image.brokers) == 2)
        assert await second.writer.create_topics(["orders"]) == {}
        # The controller has given the topic its partitions and told both brokers.
        assert second.image.topics == cluster.image.topics
        (partition,) = cluster.image.topics["orders"].partitions
        assert partition.leader in (0, 1)
        assert "/brokers/topics/orders/partitions/0/state" in await cluster.tree()

    run(scenario, tmp_path)


def test_the_second_broker_takes_over_when_the_session_of_the_first_ends(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        second = await start_second(cluster)
        await wait_until_async(lambda: len(cluster.image.brokers) == 2)
        new = NewTopic("orders", assignments=[(0, [0, 1])])
        lone = NewTopic("lone", assignments=[(0, [0])])
        for created in await cluster.controller.create_topics([new, lone]):
            assert isinstance(created, PlannedTopic)
        del cluster.brokers.nodes[BrokerId(0)]
        await cluster.session.expire()
        await wait_until_async(lambda: second.controller.is_active)
        assert (await cluster.tree())["/controller_epoch"] == b"2"

        def leaders() -> dict[str, list[tuple[int, int]]]:
            return {
                name: [(each.leader, each.leader_epoch) for each in topic.partitions]
                for name, topic in second.image.topics.items()
            }

        await wait_until_async(lambda: leaders() == {"orders": [(1, 1)], "lone": [(-1, 1)]})
        assert list(second.image.brokers) == [1]
        assert (second.image.controller_id, second.image.controller_epoch) == (1, 2)
        await second.controller.create_topics([NewTopic("later")])
        assert "later" in second.image.topics
        # The first has no session any more, and knows it.
        await wait_until_async(lambda: not cluster.controller.is_active)
        with pytest.raises(NotController):
            await cluster.controller.create_topics([NewTopic("never")])
        await second.controller.close()

    run(scenario, tmp_path)


def test_a_controller_whose_node_is_taken_away_stands_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        other = await cluster.store.connect()
        await other.delete("/controller")
        await wait_until_async(lambda: cluster.image.controller_epoch == 2)
        await cluster.create("orders")
        assert cluster.image.controller_epoch == 2

    run(scenario, tmp_path)


def test_a_broker_whose_session_ended_may_register_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        epoch = cluster.image.brokers[BrokerId(0)].epoch
        await cluster.session.expire()
        cluster.node = await cluster.start_broker(await cluster.store.connect())
        assert cluster.controller.is_active
        assert cluster.image.brokers[BrokerId(0)].epoch > epoch

    run(scenario, tmp_path)


def test_brokers_that_start_a_cluster_at_once_agree_on_its_id(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = Cluster(tmp_path)
        sessions = [await cluster.open_store(), await cluster.store.connect(), await cluster.store.connect()]
        nodes = await asyncio.gather(
            *(
                cluster.start_broker(session, broker_id=BrokerId(index))
                for index, session in enumerate(sessions)
            )
        )
        assert len({node.image.cluster_id for node in nodes}) == 1
        assert [node.controller.is_active for node in nodes].count(True) == 1
        for node in nodes:
            await node.controller.close()
        await cluster.store.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_nobody_waits_for_a_controller_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a fault of the shell")

    async def scenario(cluster: Cluster) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Controller, "_carry_out", fail)
            with pytest.raises(UnknownServerError, match="the controller failed"):
                await cluster.controller.create_topics([NewTopic("orders")])
            patch.setattr(Controller, "_feed", fail)
            with pytest.raises(RuntimeError, match="a fault of the shell"):
                await cluster.controller.close()

    run(scenario, tmp_path)
