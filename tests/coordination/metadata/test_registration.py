"""The registration of a broker: its epoch, an id in use, what an earlier run has left, addresses of another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.clock import ManualClock, SystemClock
from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.metadata.membership import (
    UNREGISTERED_EPOCH,
    Registration,
    join_cluster,
    registered_brokers,
)
from barnabas.coordination.metadata.tree import broker_path
from barnabas.coordination.store.contract import Store
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.errors import DuplicateBrokerRegistration, InconsistentClusterId, InvalidConfig
from barnabas.model import BrokerId
from tests.coordination.engines import run

ONE = BrokerId(1)
PATIENCE_S = 100.0


def registration(
    store: Store, *, port: int = 9092, broker_id: BrokerId = ONE, patience_s: float = PATIENCE_S
) -> Registration:
    config = BrokerConfig({"listeners": f"PLAINTEXT://localhost:{port}"})
    return Registration(
        store, broker_id, config.advertised_endpoints, None, ManualClock(), patience_s=patience_s
    )


def with_store(path: Path, scenario: Callable[[EmbeddedStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = await EmbeddedStore.open([str(path)], clock=SystemClock())
        try:
            await join_cluster(await store.connect(), Random(1), None)
            await scenario(store)
        finally:
            await store.close()

    run(main())


def test_the_epoch_is_the_zxid_of_the_node(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        registered = registration(session)
        assert registered.epoch == UNREGISTERED_EPOCH
        await registered.register()
        found = (await registered_brokers(session))[ONE]
        assert registered.epoch == found.epoch > 0
        # The answer to the first attempt may have been lost.
        await registered.register()
        assert registered.epoch == found.epoch

    with_store(tmp_path, scenario)


def test_a_registration_of_the_last_run_is_waited_for(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        last = await store.connect()
        before = registration(last)
        await before.register()
        after = registration(await store.connect())
        registering = asyncio.ensure_future(after.register())
        done, _ = await asyncio.wait([registering], timeout=0.05)
        assert not done
        await last.expire()
        await registering
        assert after.epoch > before.epoch

    with_store(tmp_path, scenario)


def test_a_registration_that_stays_is_that_of_another_broker(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await registration(await store.connect()).register()
        with pytest.raises(
            DuplicateBrokerRegistration, match=r"broker id 1 is in use by a broker at PLAINTEXT://"
        ):
            await registration(await store.connect(), patience_s=0.01).register()
        # Another address is another broker for certain: nothing is waited for.
        with pytest.raises(
            DuplicateBrokerRegistration, match=r"ephemeral at /brokers/ids/1, node already exists"
        ):
            await registration(await store.connect(), port=9093).register()

    with_store(tmp_path, scenario)


def test_a_node_that_the_last_session_has_left_is_removed(tmp_path: Path) -> None:
    class Two:
        """A store with a second session, while the node of the first is still there."""

        def __init__(self, session: Store) -> None:
            self.session = session

        def __getattr__(self, name: str) -> object:
            return getattr(self.session, name)

    async def scenario(store: EmbeddedStore) -> None:
        both = Two(await store.connect())
        registered = registration(both)  # type: ignore[arg-type]
        await registered.register()
        epoch = registered.epoch
        both.session = await store.connect()
        await registered.register()
        assert registered.epoch > epoch
        stat = await both.session.exists(broker_path(ONE))
        assert stat is not None
        assert stat.ephemeral_owner == both.session.session_id

    with_store(tmp_path, scenario)


def test_the_addresses_of_another_broker(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await registration(await store.connect()).register()
        with pytest.raises(
            InvalidConfig,
            match=r"Configured end points localhost:9092 in advertised listeners are already registered by broker 1",
        ):
            await registration(await store.connect(), broker_id=BrokerId(2)).register()

    with_store(tmp_path, scenario)


def test_log_directories_of_another_cluster(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        with pytest.raises(InconsistentClusterId, match=r"doesn't match stored clusterId of-another in meta"):
            await join_cluster(session, Random(1), "of-another", may_found=False)
        await session.delete("/cluster/id")
        with pytest.raises(InconsistentClusterId, match=r"ZooKeeper has no cluster there"):
            await join_cluster(session, Random(1), "of-another", may_found=False)
        assert await session.exists("/cluster/id") is None

    with_store(tmp_path, scenario)
