"""What a controller finds when it starts: a new cluster, one that was left well, and one that was not."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.coordination.metadata.identity import random_id
from barnabas.coordination.metadata.image import NO_LEADER
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    PERSISTENT_PATHS,
    BrokerRegistration,
    decode_uuid,
    encode_broker,
)
from barnabas.coordination.planning.topic_adoption import FoundPartition
from barnabas.coordination.store.contract import CreateMode, Store
from barnabas.errors import DuplicateBrokerRegistration, InconsistentClusterId
from barnabas.model import BrokerId, LeaderEpoch, TopicPartition
from tests.coordination.controllers import PATIENCE_S, Cluster, run


def test_a_new_cluster_has_kafkas_nodes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        tree = await cluster.tree()
        image = cluster.image
        assert set(PERSISTENT_PATHS) < tree.keys()
        assert tree["/controller_epoch"] == b"1"
        assert json.loads(tree["/controller"])["brokerid"] == 0
        assert json.loads(tree["/cluster/id"]) == {"version": "1", "id": image.cluster_id}
        assert len(decode_uuid(image.cluster_id)) == 16
        registration = json.loads(tree["/brokers/ids/0"])
        assert registration["endpoints"] == ["PLAINTEXT://localhost:9092"]
        assert registration["rack"] == "r1"
        stat = await cluster.session.exists("/brokers/ids/0")
        assert stat is not None
        assert stat.ephemeral_owner == cluster.session.session_id
        broker = image.brokers[BrokerId(0)]
        assert (broker.epoch, broker.rack, broker.endpoints) == (
            stat.czxid,
            "r1",
            cluster.config.advertised_endpoints,
        )
        assert (image.controller_id, image.controller_epoch) == (0, 1)

    run(scenario, tmp_path, broker_rack="r1", advertised_listeners="PLAINTEXT://localhost:9092")


def test_every_start_is_a_new_controller_epoch_of_the_same_cluster(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = cluster.image
        second = (await cluster.restart()).image
        assert second.cluster_id == first.cluster_id
        assert second.controller_epoch == 2
        assert second.brokers[BrokerId(0)].epoch > first.brokers[BrokerId(0)].epoch
        assert (await cluster.tree())["/controller_epoch"] == b"2"
        # A change in the new epoch is accepted.
        await cluster.create("orders")

    run(scenario, tmp_path)


def test_a_cluster_id_from_elsewhere_is_taken_or_refused(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = Cluster(tmp_path)
        controller = await cluster.start(cluster_id="abcdefghijklmnopqrstuv")
        assert controller.image.cluster_id == "abcdefghijklmnopqrstuv"
        await cluster.stop()
        session = await cluster.open_store()
        with pytest.raises(InconsistentClusterId, match="abcdefghijklmnopqrstuv"):
            await cluster.start_broker(session, cluster_id="vutsrqponmlkjihgfedcba")
        assert await session.exists("/controller") is None
        await cluster.store.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_broker_id_in_use_is_refused(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        tree = await cluster.tree()
        with pytest.raises(
            DuplicateBrokerRegistration, match=r"broker id 0 is in use by a broker at PLAINTEXT://"
        ):
            await cluster.start_broker(await cluster.store.connect())
        assert await cluster.tree() == tree

    run(scenario, tmp_path)


def test_leader_epochs_stay_after_a_clean_stop_and_rise_after_a_crash(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("orders", 2)
        stayed = (await cluster.restart(clean_stop=True)).image.topics["orders"]
        assert [each.leader_epoch for each in stayed.partitions] == [0, 0]
        for epoch in (1, 2):
            risen = (await cluster.restart(clean_stop=False)).image.topics["orders"]
            assert [(each.leader, each.leader_epoch, each.isr) for each in risen.partitions] == [
                (0, epoch, (0,))
            ] * 2
            assert [each.partition_epoch for each in risen.partitions] == [epoch, epoch]
            node, stat = await cluster.session.get("/brokers/topics/orders/partitions/0/state")
            assert json.loads(node)["leader_epoch"] == stat.version == epoch

    run(scenario, tmp_path)


def edit_json(store: Store, path: str) -> Callable[..., Awaitable[None]]:
    async def edit(**fields: object) -> None:
        data, _ = await store.get(path)
        await store.set(path, json.dumps({**json.loads(data), **fields}).encode())

    return edit


def restart_after(
    tmp_path: Path, damage: Callable[[Store], Awaitable[None]], check: Callable[[Cluster], Awaitable[None]]
) -> None:
    """Creates a topic of two partitions, lets `damage` at the store while nobody is there, and starts again."""

    async def main() -> None:
        cluster = Cluster(tmp_path)
        await cluster.start()
        await cluster.create("orders", 2)
        await cluster.stop()
        session = await cluster.open_store()
        await damage(session)
        await cluster.store.close()
        try:
            await cluster.start()
            await check(cluster)
        finally:
            await cluster.store.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_partitions_without_a_state_are_made(tmp_path: Path) -> None:
    """The store keeps a topic's own node before the states of its partitions."""

    async def damage(store: Store) -> None:
        await store.delete("/brokers/topics/orders/partitions/1/state")
        await store.delete("/brokers/topics/orders/partitions/1")
        await store.delete("/brokers/topics/orders/partitions/0/state")

    async def check(cluster: Cluster) -> None:
        topic = cluster.image.topics["orders"]
        assert [(each.leader, each.leader_epoch, each.partition_epoch) for each in topic.partitions] == [
            (0, 0, 0)
        ] * 2
        image = cluster.image
        assert (await cluster.restart()).image.topics == image.topics

    restart_after(tmp_path, damage, check)


def test_a_topic_without_any_partition_node_is_made_whole(tmp_path: Path) -> None:
    async def damage(store: Store) -> None:
        node = b'{"version":3,"partitions":{"0":[0],"1":[0]},"adding_replicas":{},"removing_replicas":{}}'
        await store.create("/brokers/topics/half", node)

    async def check(cluster: Cluster) -> None:
        half = cluster.image.topics["half"]
        assert len(half.partitions) == 2
        assert "/brokers/topics/half/partitions/1/state" in await cluster.tree("/brokers/topics/half")
        # A topic of an old release gets an id, and keeps it.
        assert (await cluster.restart()).image.topics["half"] == half

    restart_after(tmp_path, damage, check)


def test_leaders_that_are_gone_are_replaced_by_a_replica_in_sync(tmp_path: Path) -> None:
    async def damage(store: Store) -> None:
        topic = edit_json(store, "/brokers/topics/orders")
        await topic(partitions={"0": [5, 0], "1": [5, 0]})
        for index, isr in enumerate(([5, 0], [5])):
            state = edit_json(store, f"/brokers/topics/orders/partitions/{index}/state")
            await state(leader=5, isr=isr, leader_epoch=3)

    async def check(cluster: Cluster) -> None:
        first, second = cluster.image.topics["orders"].partitions
        assert (first.leader, first.leader_epoch, first.isr) == (0, 4, (0,))
        assert (second.leader, second.leader_epoch, second.isr) == (NO_LEADER, 4, (5,))
        # Nothing changes for a partition that nobody can lead.
        again = (await cluster.restart()).image.topics["orders"].partitions[1]
        assert again == second

    restart_after(tmp_path, damage, check)


def test_leaders_on_other_live_brokers_are_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = Cluster(tmp_path)
        await cluster.start()
        await cluster.create("orders")
        await cluster.stop()
        session = await cluster.open_store()
        registration = BrokerRegistration(
            broker_id=BrokerId(5), endpoints=cluster.config.advertised_endpoints, timestamp_ms=1, rack="r5"
        )
        await session.create("/brokers/ids/5", encode_broker(registration), mode=CreateMode.EPHEMERAL)
        state = edit_json(session, "/brokers/topics/orders/partitions/0/state")
        await state(leader=5, isr=[5, 0], leader_epoch=3)
        controller = await cluster.start_broker(await cluster.store.connect(), clean_stop=False)
        assert sorted(controller.cache.image.brokers) == [0, 5]
        assert controller.cache.image.brokers[BrokerId(5)].rack == "r5"
        (partition,) = controller.cache.image.topics["orders"].partitions
        assert (partition.leader, partition.leader_epoch) == (5, 3)
        await cluster.store.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_mark_for_a_topic_that_is_gone_is_removed(tmp_path: Path) -> None:
    async def damage(store: Store) -> None:
        await store.create("/admin/delete_topics/long.gone")

    async def check(cluster: Cluster) -> None:
        assert await cluster.tree("/admin/delete_topics") == {}
        await cluster.create("long.gone")

    restart_after(tmp_path, damage, check)


def test_settings_of_a_topic_that_is_gone_do_not_come_back(tmp_path: Path) -> None:
    async def damage(store: Store) -> None:
        await store.create("/config/topics/late", b'{"version":1,"config":{"retention.ms":"1"}}')

    async def check(cluster: Cluster) -> None:
        await cluster.create("late")
        assert cluster.image.topic_config("late") == {}
        assert (await cluster.restart()).image.topic_configs == {}

    restart_after(tmp_path, damage, check)


DAMAGED = [
    ("/brokers/topics/orders", b"no json"),
    ("/brokers/topics/orders", b'{"version":3,"partitions":{}}'),
    ("/brokers/topics/orders", b'{"version":3,"partitions":{"1":[0],"2":[0]}}'),
    ("/brokers/topics/orders", b'{"version":3,"partitions":{"0":[]}}'),
    ("/brokers/topics/orders/partitions/0/state", b"{}"),
    ("/config/users/ann", b'{"version":1,"config":{"request_percentage":"much"}}'),
    ("/controller_epoch", b"many"),
]


def test_a_damaged_node_is_named(tmp_path: Path) -> None:
    async def damage(store: Store) -> None:
        await store.create("/config/users/ann")

    async def check(cluster: Cluster) -> None:
        await cluster.session.close()
        for path, data in DAMAGED:
            session = await cluster.store.connect()
            whole, _ = await session.get(path)
            await session.set(path, data)
            with pytest.raises(MalformedNode, match=path):
                await cluster.start_broker(session)
            await session.set(path, whole)
            await session.close()
        await cluster.start_broker(await cluster.store.connect())

    restart_after(tmp_path, damage, check)


def found(topic_id: bytes | None = None, leader_epoch: int = -1) -> FoundPartition:
    return FoundPartition(topic_id=topic_id, leader_epoch=LeaderEpoch(leader_epoch))


def test_directories_that_the_store_does_not_know_become_topics(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        known = await cluster.create("known")
        topic_id = random_id(Random(7))
        adopted = await cluster.controller.adopt_topics(
            {
                TopicPartition("brought", 0): found(topic_id, 4),
                TopicPartition("brought", 2): found(topic_id),
                TopicPartition("plain", 0): found(),
                TopicPartition("known", 3): found(known.id, 9),
                TopicPartition("__consumer_offsets", 0): found(None, 0),
            }
        )
        image = cluster.image
        assert sorted(image.topics) == ["__consumer_offsets", "brought", "known", "plain"]
        assert [each.name for each in adopted] == ["__consumer_offsets", "brought", "plain"]
        brought = image.topics["brought"]
        assert brought.id == topic_id
        # Epochs go on from where the logs are; a partition between others is new.
        assert [each.leader_epoch for each in brought.partitions] == [5, 0, 0]
        assert image.topics["known"] == known
        assert image.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"
        assert (await cluster.restart()).image.topics == image.topics

    run(scenario, tmp_path)


def test_directories_that_contradict_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: Cluster) -> None:
        known = await cluster.create("known")
        ids = [random_id(Random(seed)) for seed in range(2)]
        adopted = await cluster.controller.adopt_topics(
            {
                TopicPartition("two.ids", 0): found(ids[0]),
                TopicPartition("two.ids", 1): found(ids[1]),
                TopicPartition("copy.of.known", 0): found(known.id),
                TopicPartition("far", 1_000_000_000): found(),
                TopicPartition("bad name", 0): found(),
            }
        )
        assert adopted == []
        assert list(cluster.image.topics) == ["known"]

    caplog.set_level(logging.ERROR)
    run(scenario, tmp_path)
    assert len(caplog.records) == 4
    for reason in ("different topic ids", "topic 'known' has the id", "partition 1000000000", "this name"):
        assert reason in caplog.text
