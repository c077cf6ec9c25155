"""Follows something in the store: reads it again when there is news, and after a while when the store has failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from barnabas.coordination.store.contract import SessionExpired, StoreError, WatchEvent

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0


class Following:
    """`read` reads what is new and sets the next watch, which has `on_news` as its watcher."""

    def __init__(self, subject: str, read: Callable[[], Awaitable[None]]) -> None:
        self._subject = subject
        self._read = read
        self._has_news = False
        self._closing = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    def on_news(self, event: WatchEvent) -> None:
        self._has_news = True
        if self._worker is None and not self._closing.is_set():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Waits for the reading under way."""
        self._has_news = False
        self._closing.set()
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def _work(self) -> None:
        try:
            while self._has_news:
                self._has_news = False
                try:
                    await self._read()
                except SessionExpired:
                    # In the next session all is read.
                    return
                except StoreError as error:
                    log.warning("%s cannot be followed, which is tried again: %s", self._subject, error)
                    # The watch may not be set: no event would come.
                    self._has_news = True
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._closing.wait(), RETRY_S)
                        return
        finally:
            self._worker = None
