"""The controller hears of replicas that went offline, also if the store does not take the notice at first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.replication import offline_notices
from barnabas.broker.replication.offline_notices import OfflineNotices
from barnabas.clock import SystemClock
from barnabas.coordination.metadata.tree import LOG_DIR_EVENTS, decode_log_dir_event
from barnabas.coordination.store.contract import Store, StoreUnavailable, ensure_path
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.model import BrokerId
from tests.coordination.engines import run
from tests.waiting import wait_until_async


class Refusing:
    """A store that does not take the first few nodes."""

    def __init__(self, store: Store, refusals: int) -> None:
        self._store = store
        self._refusals = refusals

    async def create(self, *arguments: Any, **named: Any) -> Any:
        if self._refusals:
            self._refusals -= 1
            raise StoreUnavailable("not now")
        return await self._store.create(*arguments, **named)


def test_a_notice_is_written_again_until_the_store_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline_notices, "RETRY_S", 0.001)

    async def main() -> None:
        store = await EmbeddedStore.open([str(tmp_path)], clock=SystemClock())
        session = await store.connect()
        await ensure_path(session, LOG_DIR_EVENTS)
        notices = OfflineNotices(Refusing(session, 2), BrokerId(3))  # type: ignore[arg-type]
        # Two failures at once need one notice.
        notices.note()
        notices.note()

        await wait_until_async(lambda: notices.is_idle)
        [name] = (await session.children(LOG_DIR_EVENTS))[0]
        path = f"{LOG_DIR_EVENTS}/{name}"
        data, _ = await session.get(path)
        assert decode_log_dir_event(path, data) == 3
        notices.note()
        await wait_until_async(lambda: notices.is_idle)
        assert len((await session.children(LOG_DIR_EVENTS))[0]) == 2
        await notices.close()
        await store.close()

    run(main())
