"""Tells the controller, by a notice in the store as in Kafka 3.9, that replicas of this broker have gone offline.

The controller then sends this broker its roles again, learns from the errors in the answer which replicas are offline,
and elects other leaders. A notice names the broker only, so one that is not yet written stands for all failures.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from barnabas.coordination.metadata.tree import LOG_DIR_EVENT_PREFIX, encode_log_dir_event
from barnabas.coordination.store.contract import CreateMode, Store, StoreError
from barnabas.model import BrokerId

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0


class OfflineNotices:
    def __init__(self, store: Store, broker_id: BrokerId) -> None:
        self._store = store
        self._broker_id = broker_id
        self._is_due = False
        self._telling: asyncio.Task[None] | None = None

    def note(self) -> None:
        """Replicas have gone offline."""
        self._is_due = True
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    @property
    def is_idle(self) -> bool:
        """Whether no notice waits to be written."""
        return self._telling is None

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait([self._telling])

    async def _tell(self) -> None:
        """Tries until it has succeeded: without the notice the controller leaves dead leaders in office."""
        try:
            while self._is_due:
                self._is_due = False
                try:
                    await self._store.create(
                        LOG_DIR_EVENT_PREFIX,
                        encode_log_dir_event(self._broker_id),
                        mode=CreateMode.PERSISTENT_SEQUENTIAL,
                    )
                except StoreError as error:
                    log.warning("The controller does not know of offline replicas yet: %s", error)
                    self._is_due = True
                    await asyncio.sleep(RETRY_S)
        finally:
            self._telling = None
