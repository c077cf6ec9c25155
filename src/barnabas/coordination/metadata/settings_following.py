"""Keeps the settings in a broker's metadata up to date while it runs.

A broker that changes settings leaves a notice (`notices.py`), and every broker reads the settings that it names.
Notices of settings that Kafka 3.9 does not know are in a place of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from barnabas.clock import Clock
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.notices import Notices, latest_notice
from barnabas.coordination.metadata.settings_reading import (
    read_settings,
    stored_topics,
    with_all_nodes,
    with_nodes,
)
from barnabas.coordination.metadata.tree import (
    CONFIG_CHANGE_PREFIX,
    OWN_CONFIG_CHANGE_PREFIX,
    decode_config_change,
)
from barnabas.coordination.store.contract import Store

log = logging.getLogger(__name__)


# The number of the latest notice in each place.
LastNotices: TypeAlias = Sequence[int]
_PREFIXES: Final = (CONFIG_CHANGE_PREFIX, OWN_CONFIG_CHANGE_PREFIX)


async def last_notices(store: Store) -> LastNotices:
    """To be read before the settings: later notices are handled after them."""
    return [await latest_notice(store, prefix) for prefix in _PREFIXES]


class SettingsFollower:
    def __init__(self, store: Store, cache: MetadataCache, clock: Clock) -> None:
        self._store = store
        self._cache = cache
        self._notices = [Notices(store, clock, prefix, self._handle) for prefix in _PREFIXES]

    async def begin(self, latest: LastNotices) -> None:
        """Handles notices after these, and those to come. Raises StoreError."""
        for notices, last_number in zip(self._notices, latest, strict=True):
            await notices.begin(last_number)

    async def read_again(self) -> None:
        """Reads all settings: in a new session there may be changes whose notices have expired. Raises StoreError."""
        latest = await last_notices(self._store)
        topics = await stored_topics(self._store)
        nodes = await read_settings(self._store, topics)
        # The image may have changed while the settings were read.
        before = self._cache.image
        image = with_all_nodes(before, nodes, topics)
        if image is not before:
            self._cache.publish(image)
        await self.begin(latest)

    async def close(self) -> None:
        """Waits for the notices under way."""
        for notices in self._notices:
            await notices.close()

    async def refresh(self, paths: Iterable[str]) -> None:
        """Reads the settings at these paths and publishes them if they differ."""
        wanted = list(dict.fromkeys(paths))
        found = await self._store.get_all(wanted)
        before = self._cache.image
        nodes = zip(wanted, (b"" if node is None else node[0] for node in found), strict=True)
        image = with_nodes(before, nodes)
        if image is not before:
            self._cache.publish(image)

    async def _handle(self, notices: Sequence[tuple[str, bytes]]) -> None:
        changed = []
        for path, data in notices:
            try:
                changed.append("/config/" + "/".join(decode_config_change(path, data)))
            except MalformedNode as error:
                log.error("A notice of changed settings is ignored: %s", error)
        if changed:
            await self.refresh(changed)
