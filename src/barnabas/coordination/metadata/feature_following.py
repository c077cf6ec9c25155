"""Keeps the finalized features in a broker's metadata up to date.

The broker reads `/feature` when it starts, in each later session, and when the node changes. It does not start with a
finalized feature that it does not support, and stops when there is one later: it would misread what brokers write that
do support it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.features import (
    NO_FEATURES,
    SUPPORTED,
    FinalizedFeatures,
    unsupported_features,
)
from barnabas.coordination.metadata.following import Following
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import FEATURE, decode_features
from barnabas.coordination.store.contract import Store
from barnabas.errors import InvalidConfig
from barnabas.value import replace

log = logging.getLogger(__name__)


class FeatureFollower:
    def __init__(self, store: Store, cache: MetadataCache, fail: Callable[[str], None]) -> None:
        """`fail` stops the broker, for a reason."""
        self._store = store
        self._cache = cache
        self._fail = fail
        self._turn = asyncio.Lock()
        self._following = Following("Finalized features", self._follow)

    async def read(self) -> None:
        """Reads the features, and follows them from then on. Raises StoreError, and InvalidConfig for one that is not
        supported.
        """
        async with self._turn:
            await self._store.exists(FEATURE, self._following.on_news)
            [found] = await self._store.get_all([FEATURE])
            features = NO_FEATURES
            if found is not None:
                node = decode_features(found[0])
                if node.enabled:
                    features = FinalizedFeatures(found[1].version, node.features)
            missing = unsupported_features(features.levels, SUPPORTED)
            if missing:
                raise InvalidConfig(
                    f"the cluster has finalized {', '.join(missing)}, which this broker does not support: run a newer"
                    " version of Barnabas, or lower the level with `barnabas features downgrade`"
                )
            before = self._cache.image
            if features != before.features:
                log.info("Finalized features: %s, epoch %d", dict(features.levels), features.epoch)
                self._cache.publish(replace(before, features=features))

    async def read_again(self) -> None:
        """Reads the features in a new session."""
        try:
            await self.read()
        except MalformedNode as error:
            log.error("Features are not followed: %s", error)

    async def close(self) -> None:
        """Waits for the change under way."""
        await self._following.close()

    async def _follow(self) -> None:
        try:
            await self.read_again()
        except InvalidConfig as error:
            self._fail(str(error))
