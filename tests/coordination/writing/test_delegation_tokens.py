"""Notices of delegation tokens that others have written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination.metadata.token_nodes import TOKEN_CHANGE_PREFIX, TOKENS
from barnabas.coordination.store.contract import CreateMode
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.coordination.writing.delegation_tokens import DelegationTokens, TokenSettings
from barnabas.security.principal import Principal
from tests.waiting import wait_until_async

ANN = Principal("User", "ann")
SETTINGS = TokenSettings(
    secret_key=b"key",
    max_lifetime_ms=1_000,
    expiry_time_ms=1_000,
    expiry_check_interval_ms=1_000_000,
    mechanisms=(),
)


def test_nodes_that_make_no_sense_cost_no_tokens(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        engine = await EmbeddedStore.open([str(tmp_path)], clock=clock)
        stores = [await engine.connect() for _ in range(2)]
        first, second = (DelegationTokens(store, SETTINGS, clock, Random(1)) for store in stores)
        await first.begin()
        await stores[0].create(f"{TOKENS}/bad", b"{")
        for data in (b"", b"a/b", b".", b"\xff", b"a\0", b"bad", b"gone"):
            await stores[0].create(TOKEN_CHANGE_PREFIX, data, mode=CreateMode.PERSISTENT_SEQUENTIAL)
        await second.begin()
        token = await second.create(ANN, ANN, (), -1)
        await wait_until_async(lambda: first.find(token.token_id) == token)
        for each in (first, second):
            await each.close()
        await engine.close()

    asyncio.run(scenario())
    assert "A notice of a changed delegation token is ignored: " in caplog.text
    assert "A delegation token is ignored: /delegation_token/tokens/bad: no JSON" in caplog.text
