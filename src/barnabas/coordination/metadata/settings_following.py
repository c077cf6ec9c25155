"""Keeps the settings in a broker's metadata up to date while it runs.

A broker that changes settings leaves a notice, and every broker reads the settings that the notice names. Notices are
numbered and handled in order. The broker that handles them removes those that are older than 15 minutes; a broker that
was away for longer reads all settings when it starts.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from barnabas.clock import Clock
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.settings_reading import (
    stored_topics,
    with_node,
    with_settings,
    with_settings_read,
)
from barnabas.coordination.metadata.tree import CONFIG_CHANGE_PREFIX, CONFIG_CHANGES, decode_config_change
from barnabas.coordination.store.contract import (
    NoNode,
    Store,
    StoreError,
    WatchEvent,
    child_path,
    children_of,
    name_of,
)

log = logging.getLogger(__name__)

NOTICE_EXPIRATION_MS: Final = 15 * 60 * 1000
# So many old notices are looked at when there are new ones.
EXPIRED_AT_ONCE: Final = 100
_NOTICE_NAME: Final = name_of(CONFIG_CHANGE_PREFIX)


async def last_notice(store: Store) -> int:
    """The number of the latest notice. To be read before the settings: later notices are handled after them."""
    return max(map(_number, await children_of(store, CONFIG_CHANGES)), default=-1)


class SettingsFollower:
    def __init__(self, store: Store, cache: MetadataCache, clock: Clock) -> None:
        self._store = store
        self._cache = cache
        self._clock = clock
        self._last_number = -1
        self._has_news = False
        self._worker: asyncio.Task[None] | None = None

    async def begin(self, last_number: int) -> None:
        """Handles notices after this one, and those to come. Raises StoreError."""
        self._last_number = last_number
        await self._handle_notices()

    async def read_again(self) -> None:
        """Reads all settings: in a new session there may be changes whose notices have expired. Raises StoreError."""
        latest = await last_notice(self._store)
        topics = await stored_topics(self._store)
        try:
            found = await with_settings(self._store, self._cache.image, topics)
        except MalformedNode as error:
            log.error("Settings are not followed: %s", error)
        else:
            # The image may have changed while the settings were read.
            self._cache.publish(with_settings_read(self._cache.image, found, topics))
        await self.begin(latest)

    async def close(self) -> None:
        """Waits for the notices under way."""
        self._has_news = False
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def refresh(self, paths: Iterable[str]) -> None:
        """Reads the settings at these paths and publishes them if they differ."""
        wanted = list(dict.fromkeys(paths))
        found = await self._store.get_all(wanted)
        before = image = self._cache.image
        for path, node in zip(wanted, found, strict=True):
            try:
                image = with_node(image, path, b"" if node is None else node[0])
            except MalformedNode as error:
                log.error("Settings are not followed: %s", error)
        if image is not before:
            self._cache.publish(image)

    def _on_notice(self, event: WatchEvent) -> None:
        self._has_news = True
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._has_news:
                self._has_news = False
                await self._handle_notices()
        except StoreError as error:
            log.warning("Changes of settings are not followed: %s", error)
        finally:
            self._worker = None

    async def _handle_notices(self) -> None:
        names, _ = await self._store.children(CONFIG_CHANGES, self._on_notice)
        names.sort(key=_number)
        # Thousands of notices may wait for their expiration: the oldest show whether there is anything to remove.
        first_new = bisect_right(names, self._last_number, key=_number)
        names = [*names[: min(first_new, EXPIRED_AT_ONCE)], *names[first_new:]]
        paths = [child_path(CONFIG_CHANGES, name) for name in names]
        changed, expired = [], []
        for path, found in zip(paths, await self._store.get_all(paths), strict=True):
            if found is None:
                continue
            data, stat = found
            if _number(path) > self._last_number:
                self._last_number = _number(path)
                try:
                    changed.append("/config/" + "/".join(decode_config_change(path, data)))
                except MalformedNode as error:
                    log.error("A notice of changed settings is ignored: %s", error)
            elif self._clock.now_ms() - stat.ctime_ms > NOTICE_EXPIRATION_MS:
                expired.append(path)
        if changed:
            await self.refresh(changed)
        for path in expired:
            try:
                await self._store.delete(path)
            except NoNode:
                # Another broker has removed it.
                continue


def _number(name: str) -> int:
    digits = name.removeprefix(CONFIG_CHANGES + "/").removeprefix(_NOTICE_NAME)
    return int(digits) if digits.isascii() and digits.isdigit() else -1
