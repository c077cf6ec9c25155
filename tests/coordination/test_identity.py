"""Who is who: ids, registrations and elections decided by the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.clock import SystemClock
from barnabas.config.listeners import Endpoint, SecurityProtocol
from barnabas.coordination import tree
from barnabas.coordination.embedded_store import EmbeddedStore
from barnabas.coordination.identity import (
    ControllerMoved,
    ProducerIdsExhausted,
    allocate_producer_ids,
    create_or_get_cluster_id,
    create_top_level_paths,
    elect_controller,
    generate_broker_id,
    register_broker,
)
from barnabas.coordination.tree import BrokerRegistration
from barnabas.errors import DuplicateBrokerRegistration
from barnabas.model import BrokerId, ProducerId
from tests.coordination.engines import run

ONE, TWO = BrokerId(1), BrokerId(2)


def with_store(path: Path, scenario: Callable[[EmbeddedStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = await EmbeddedStore.open(path / "store.db", clock=SystemClock())
        try:
            await scenario(store)
        finally:
            await store.close()

    run(main())


def registration(broker_id: BrokerId) -> BrokerRegistration:
    endpoint = Endpoint(
        listener_name="PLAINTEXT", host="h", port=1, security_protocol=SecurityProtocol.PLAINTEXT
    )
    return BrokerRegistration(broker_id=broker_id, endpoints=(endpoint,), timestamp_ms=5)


def test_the_first_cluster_id_stays(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        assert await create_or_get_cluster_id(session, "first") == "first"
        assert await create_or_get_cluster_id(session, "second") == "first"

    with_store(tmp_path, scenario)

    async def after_reopening(store: EmbeddedStore) -> None:
        assert await create_or_get_cluster_id(await store.connect(), "third") == "first"

    with_store(tmp_path, after_reopening)


def test_generated_broker_ids_count_up_above_the_reserved(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        await create_top_level_paths(session)
        ids = await asyncio.gather(
            *(generate_broker_id(session, reserved_broker_max_id=1000) for _ in range(5))
        )
        assert sorted(ids) == [1001, 1002, 1003, 1004, 1005]

    with_store(tmp_path, scenario)

    async def after_reopening(store: EmbeddedStore) -> None:
        assert await generate_broker_id(await store.connect(), reserved_broker_max_id=1000) == 1006

    with_store(tmp_path, after_reopening)


def test_a_broker_id_in_use_is_refused_until_its_session_ends(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        first, second = await store.connect(), await store.connect()
        epoch = await register_broker(first, registration(ONE))
        with pytest.raises(DuplicateBrokerRegistration, match="broker id 1 is in use"):
            await register_broker(second, registration(ONE))
        data, stat = await second.get(tree.broker_path(1))
        assert tree.decode_broker(ONE, data) == registration(ONE)
        assert (stat.czxid, stat.ephemeral_owner) == (epoch, first.session_id)
        await first.close()
        assert await register_broker(second, registration(ONE)) > epoch

    with_store(tmp_path, scenario)


def test_one_controller_at_a_time_and_epochs_that_rise(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        first, second = await store.connect(), await store.connect()
        outcomes = await asyncio.gather(
            elect_controller(first, ONE, now_ms=1),
            elect_controller(second, TWO, now_ms=1),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, ControllerMoved) for outcome in outcomes) == 1
        assert tree.decode_controller((await second.get(tree.CONTROLLER))[0]) in (1, 2)
        await first.close()
        await second.close()
        third = await store.connect()
        won = await elect_controller(third, TWO, now_ms=2)
        assert (won.epoch, won.epoch_version) == (2, 2)

    with_store(tmp_path, scenario)

    async def after_reopening(store: EmbeddedStore) -> None:
        assert (await elect_controller(await store.connect(), ONE, now_ms=3)).epoch == 3

    with_store(tmp_path, after_reopening)


def test_producer_ids_are_given_once(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        blocks = await asyncio.gather(*(allocate_producer_ids(session, ONE) for _ in range(4)))
        assert sorted((block.first, block.last) for block in blocks) == [
            (0, 999),
            (1000, 1999),
            (2000, 2999),
            (3000, 3999),
        ]
        assert (await allocate_producer_ids(session, ONE, at_least=ProducerId(50_000))).first == 50_000
        last = tree.ProducerIdBlock(broker_id=ONE, first=ProducerId(0), last=ProducerId((1 << 63) - 2))
        await session.set(tree.PRODUCER_ID_BLOCK, tree.encode_producer_id_block(last))
        with pytest.raises(ProducerIdsExhausted):
            await allocate_producer_ids(session, ONE)

    with_store(tmp_path, scenario)
