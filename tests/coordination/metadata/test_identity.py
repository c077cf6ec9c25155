"""Numbers that a cluster gives out once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.clock import SystemClock
from barnabas.coordination.metadata import tree
from barnabas.coordination.metadata.identity import (
    ProducerIdsExhausted,
    allocate_producer_ids,
    generate_broker_id,
    random_id,
    settle_broker_id,
)
from barnabas.coordination.store.contract import ensure_path
from barnabas.coordination.store.embedded import EmbeddedStore
from barnabas.errors import InvalidConfig
from barnabas.model import BrokerId, ProducerId
from tests.coordination.engines import run

ONE = BrokerId(1)


def with_store(path: Path, scenario: Callable[[EmbeddedStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = await EmbeddedStore.open([str(path)], clock=SystemClock())
        try:
            await scenario(store)
        finally:
            await store.close()

    run(main())


def test_generated_broker_ids_count_up_above_the_reserved(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        ids = await asyncio.gather(
            *(generate_broker_id(session, reserved_broker_max_id=1000) for _ in range(5))
        )
        assert sorted(ids) == [1001, 1002, 1003, 1004, 1005]

    with_store(tmp_path, scenario)

    async def after_reopening(store: EmbeddedStore) -> None:
        assert await generate_broker_id(await store.connect(), reserved_broker_max_id=1000) == 1006

    with_store(tmp_path, after_reopening)


def test_a_store_of_version_0_1_knows_its_broker_by_its_topics(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        session = await store.connect()
        await ensure_path(session, tree.TOPICS)
        assignment = tree.TopicAssignment(
            topic_id=None, partitions={0: tree.ReplicaAssignment(replicas=(BrokerId(1003),))}
        )
        await session.create(tree.topic_path("orders"), tree.encode_topic(assignment))
        settled = await settle_broker_id(
            session, configured=-1, in_directories=None, reserved_broker_max_id=1000, address="localhost:9092"
        )
        assert settled == 1003
        with pytest.raises(InvalidConfig, match=r"says that this is broker 1.*belong to broker 1003"):
            await settle_broker_id(
                session,
                configured=1,
                in_directories=None,
                reserved_broker_max_id=1000,
                address="localhost:9092",
            )

    with_store(tmp_path, scenario)


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


def test_ids_are_version_4_and_never_begin_with_a_dash() -> None:
    rng = Random(3)
    ids = {random_id(rng) for _ in range(500)}
    assert len(ids) == 500
    for each in ids:
        assert each[6] >> 4 == 4
        assert each[8] >> 6 == 2
        assert tree.encode_uuid(each)[0] != "-"
