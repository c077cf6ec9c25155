"""Ids for producers: each once, whatever comes in between."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.waiting.tasks import Tasks
from barnabas.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, KafkaError
from barnabas.model import ProducerId

BLOCK = 20


class Blocks:
    """Gives blocks of ids when it is let."""

    def __init__(self) -> None:
        self.given = 0
        self.least = ProducerId(0)
        self.error: KafkaError | None = None
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def allocate(self) -> range:
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        first = self.given * BLOCK
        self.given += 1
        return range(first, first + BLOCK)

    def raise_to(self, next_id: ProducerId) -> None:
        self.least = next_id


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_ids_come_in_a_row_over_many_blocks() -> None:
    async def run() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks, Tasks())
        assert [await ids.next() for _ in range(5 * BLOCK)] == list(range(5 * BLOCK))

    asyncio.run(run())


def test_many_who_wait_share_one_block() -> None:
    async def run() -> None:
        blocks = Blocks()
        blocks.is_open.clear()
        ids = ProducerIds(blocks, Tasks())
        waiting = [asyncio.ensure_future(ids.next()) for _ in range(5)]
        await settle()
        blocks.is_open.set()
        assert sorted(await asyncio.gather(*waiting)) == list(range(5))
        assert blocks.given == 1

    asyncio.run(run())


def test_the_next_block_is_there_before_the_last_ids_are_gone() -> None:
    async def run() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks, Tasks())
        await ids.ensure()
        for expected in range(BLOCK - 2):
            assert ids.take() == expected
        assert blocks.given == 1
        await settle()
        assert blocks.given == 2
        assert [ids.take() for _ in range(4)] == list(range(BLOCK - 2, BLOCK + 2))

    asyncio.run(run())


def test_without_an_id_whoever_cannot_wait_comes_back() -> None:
    async def run() -> None:
        blocks = Blocks()
        blocks.error = CoordinatorNotAvailable()
        ids = ProducerIds(blocks, Tasks())
        with pytest.raises(CoordinatorLoadInProgress):
            ids.take()
        await settle()
        with pytest.raises(CoordinatorNotAvailable):
            await ids.next()
        blocks.error = None
        with pytest.raises(CoordinatorLoadInProgress):
            ids.take()
        await settle()
        assert ids.take() == 0

    asyncio.run(run())


def test_ids_that_others_have_are_left_out() -> None:
    async def run() -> None:
        blocks = Blocks()
        ids = ProducerIds(blocks, Tasks())
        await ids.ensure()
        ids.skip_to(ProducerId(7))
        assert ids.take() == 7
        ids.skip_to(ProducerId(3))
        assert ids.take() == 8
        ids.skip_to(ProducerId(10 * BLOCK))
        # A block may have been on its way meanwhile.
        assert await ids.next() == 10 * BLOCK

    asyncio.run(run())
