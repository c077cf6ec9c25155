"""A broker follows the finalized features, and does not run with one that it does not support."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.feature_following import FeatureFollower
from barnabas.coordination.metadata.features import NO_FEATURES, FinalizedFeatures
from barnabas.coordination.metadata.image import NO_LEADER, MetadataImage
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import FEATURE, FeatureNode, encode_features
from barnabas.coordination.store.contract import Store
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.errors import InvalidConfig
from tests.waiting import wait_until_async


def node(enabled: bool = True, **levels: int) -> bytes:
    named = {name.replace("_", "."): level for name, level in levels.items()}
    return encode_features(FeatureNode(enabled=enabled, features=named))


class World:
    def __init__(self, session: Store) -> None:
        self.session = session
        image = MetadataImage(cluster_id="c", controller_id=NO_LEADER, features=NO_FEATURES)
        self.cache = MetadataCache(image)
        self.failures: list[str] = []
        self.follower = FeatureFollower(session, self.cache, self.failures.append)

    @property
    def features(self) -> FinalizedFeatures:
        return self.cache.image.features


def run(scenario: Callable[[World], Awaitable[None]], directory: Path) -> None:
    async def main() -> None:
        store = await EmbeddedStore.open([str(directory)], clock=ManualClock())
        try:
            await scenario(World(await store.connect()))
        finally:
            await store.close()

    asyncio.run(main())


def test_each_change_is_followed(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.follower.read()
        assert world.features == NO_FEATURES
        await world.session.create(FEATURE, node())
        await wait_until_async(lambda: world.features == FinalizedFeatures(0, {}))
        await world.session.set(FEATURE, node(group_version=1))
        await wait_until_async(lambda: world.features == FinalizedFeatures(1, {"group.version": 1}))
        assert world.features.level("group.version") == 1
        assert world.features.level("transaction.version") == 0
        await world.session.set(FEATURE, node(enabled=False, group_version=1))
        await wait_until_async(lambda: world.features == NO_FEATURES)
        await world.session.set(FEATURE, node(group_version=1, transaction_version=2))
        await wait_until_async(lambda: world.features.epoch == 3)
        await world.session.delete(FEATURE)
        await wait_until_async(lambda: world.features == NO_FEATURES)
        await world.follower.close()
        assert world.failures == []

    run(scenario, tmp_path)


def test_a_level_that_is_not_supported_stops_the_broker(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.session.create(FEATURE, node(group_version=1))
        await world.follower.read()
        await world.session.set(FEATURE, node(group_version=2, share_version=1))
        await wait_until_async(lambda: world.failures)
        [reason] = world.failures
        assert reason.startswith(
            "the cluster has finalized group.version at level 2, share.version at level 1,"
        )
        # Nobody acts on what this broker does not understand.
        assert world.features.levels == {"group.version": 1}
        with pytest.raises(InvalidConfig, match=r"group\.version at level 2"):
            await world.follower.read()

    run(scenario, tmp_path)


def test_a_damaged_node_keeps_the_broker_from_starting_and_does_not_stop_it(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.session.create(FEATURE, b"{}")
        with pytest.raises(MalformedNode):
            await world.follower.read()
        await world.session.set(FEATURE, node(group_version=1))
        await wait_until_async(lambda: world.features.epoch == 1)
        await world.session.set(FEATURE, b"damaged")
        await world.session.set(FEATURE, node(transaction_version=1))
        await wait_until_async(lambda: world.features == FinalizedFeatures(3, {"transaction.version": 1}))
        await world.follower.read_again()
        assert world.failures == []

    run(scenario, tmp_path)
