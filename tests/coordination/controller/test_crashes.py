"""A controller that dies at any of its writes: whoever comes next finds a whole cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from barnabas.coordination.controller import state as state_module
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.metadata.image import MetadataImage, PartitionImage
from barnabas.coordination.planning.topic_creation import NewPartitions, NewTopic
from barnabas.coordination.store.contract import Operation, OperationResult, StoreUnavailable
from barnabas.coordination.store.embedded import EmbeddedSession
from barnabas.coordination.writing.cluster_writer import Edit
from barnabas.errors import KafkaStorageError
from barnabas.model import LeaderEpoch
from tests.coordination.controllers import PATIENCE_S, Cluster

Change = Callable[[Controller], Awaitable[object]]


class Power:
    """Runs out after so many writes."""

    def __init__(self) -> None:
        self.writes_left = 1 << 30

    def use(self) -> None:
        if self.writes_left == 0:
            raise StoreUnavailable("the power is gone")
        self.writes_left -= 1


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Power:
    power = Power()
    multi = EmbeddedSession.multi

    async def multi_with_power(
        session: EmbeddedSession, operations: Sequence[Operation]
    ) -> list[OperationResult]:
        power.use()
        return await multi(session, operations)

    monkeypatch.setattr(EmbeddedSession, "multi", multi_with_power)
    # Small parts, so that changes have many of them.
    monkeypatch.setattr(state_module, "OPERATIONS_AT_ONCE", 3)
    return power


async def restarted(cluster: Cluster) -> Controller:
    await cluster.session.close()
    cluster.node = await cluster.start_broker(await cluster.store.connect())
    return cluster.controller


def without_versions(image: MetadataImage) -> dict[str, tuple[PartitionImage, ...]]:
    """The topics, but for numbers that count how often something was stored."""
    return {
        name: tuple(
            replace(each, partition_epoch=0, leader_epoch=LeaderEpoch(0)) for each in topic.partitions
        )
        for name, topic in image.topics.items()
    }


def replacing(settings: dict[str, str]) -> Edit[str]:
    return lambda current: settings


CHANGES: dict[str, tuple[Change, Callable[[MetadataImage], bool]]] = {
    "create": (
        lambda controller: controller.create_topics([NewTopic("new", 4), NewTopic("newer", 2)]),
        lambda image: all(
            len(image.topics[name].partitions) == count
            for name, count in (("new", 4), ("newer", 2))
            if name in image.topics
        ),
    ),
    "delete": (
        lambda controller: controller.delete_topics(["old"]),
        lambda image: "old" not in image.topics or len(image.topics["old"].partitions) == 5,
    ),
    "extend": (
        lambda controller: controller.create_partitions([NewPartitions("old", 9)]),
        lambda image: len(image.topics["old"].partitions) in (5, 9),
    ),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_that_was_cut_off_is_done_or_was_never_begun(
    tmp_path: Path, power: Power, kind: str
) -> None:
    change, is_whole = CHANGES[kind]

    async def main() -> None:
        cluster = Cluster(tmp_path)
        await cluster.start()
        controller = cluster.controller
        for writes in range(100):
            if "old" not in cluster.image.topics:
                await controller.create_topics([NewTopic("old", 5, configs={"retention.ms": "1"})])
            before = without_versions(cluster.image)
            power.writes_left = writes
            failed = False
            try:
                results = await change(controller)
                # A deletion that was decided answers with the error; it is not undone.
                failed = isinstance(results, dict) and isinstance(results["old"], KafkaStorageError)
            except KafkaStorageError:
                failed = True
                # A topic that is in the store as a whole is a topic, whatever happened to the others.
                assert is_whole(cluster.image)
                assert kind == "create" or without_versions(cluster.image) == before
            power.writes_left = 1 << 30
            controller = await restarted(cluster)
            image = cluster.image
            assert is_whole(image), (writes, image.topics)
            assert "old" in image.topics or kind == "delete"
            # Nothing is left half done: another start has nothing to put right.
            await restarted(cluster)
            assert cluster.image.topics == image.topics
            controller = cluster.controller
            if not failed:
                assert writes >= 3, "the change had fewer parts than the test is made for"
                break
            await controller.delete_topics(list(cluster.image.topics))
            assert await cluster.tree("/brokers/topics") == {}
        else:
            pytest.fail("the change never succeeded")
        await cluster.stop()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


@pytest.mark.parametrize("seed", range(3))
def test_any_history_survives_restarts(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    names = [f"t{index}" for index in range(6)]

    async def main() -> None:
        cluster = Cluster(tmp_path)
        await cluster.start()
        controller = cluster.controller
        for _ in range(120):
            some = rng.sample(names, rng.randint(1, 3))
            match rng.randrange(6):
                case 0 | 1:
                    await controller.create_topics([NewTopic(name, rng.randint(1, 3)) for name in some])
                case 2:
                    await controller.delete_topics(some)
                case 3:
                    await controller.create_partitions(
                        [NewPartitions(name, rng.randint(1, 6)) for name in some]
                    )
                case 4:
                    settings = {"retention.ms": str(rng.randrange(9))} if rng.random() < 0.7 else {}
                    await cluster.writer.alter_topic_configs(dict.fromkeys(some, replacing(settings)))
                case _:
                    image = cluster.image
                    controller = await restarted(cluster)
                    assert cluster.image.topics == image.topics
                    assert cluster.image.topic_names == image.topic_names
                    assert cluster.image.topic_configs == image.topic_configs
        await controller.delete_topics(list(cluster.image.topics))
        assert await cluster.tree("/brokers/topics") == {}
        assert await cluster.tree("/config/topics") == {}
        await cluster.stop()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
