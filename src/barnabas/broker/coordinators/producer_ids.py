"""Ids for producers, handed out one by one from blocks that the controller gives to brokers."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from barnabas.broker.waiting.tasks import Tasks
from barnabas.errors import CoordinatorLoadInProgress, KafkaError
from barnabas.model import ProducerId

# Before the last ids of a block are gone, the next block is asked for.
_LOW_SHARE: Final = 10


class IdBlocks(Protocol):
    """Where blocks come from."""

    async def allocate(self) -> range: ...

    def raise_to(self, next_id: ProducerId) -> None: ...


class ProducerIds:
    """No id is given twice, in this run or any other."""

    def __init__(self, blocks: IdBlocks, tasks: Tasks) -> None:
        self._blocks = blocks
        self._tasks = tasks
        self._block = range(0)
        self._next_block = range(0)
        self._low = 0
        # Other brokers have assigned the ids below.
        self._least = ProducerId(0)
        # The block that is on its way; its result is the error of a block that does not come.
        self._allocation: asyncio.Future[KafkaError | None] | None = None

    async def next(self) -> ProducerId:
        await self.ensure()
        return self.take()

    async def ensure(self) -> None:
        """Returns when there is an id to take. If a block does not come, all that wait for it get its error."""
        while not self._block and not self._next_block:
            error = await asyncio.shield(self._allocate_later())
            if error is not None:
                raise error

    def take(self) -> ProducerId:
        """An id, at once. Raises CoordinatorLoadInProgress while the next block is on its way."""
        if not self._block:
            self._use(self._next_block)
            self._next_block = range(0)
        if not self._block:
            self._allocate_later()
            raise CoordinatorLoadInProgress("no producer ids are left; the broker is requesting more")
        producer_id = self._block[0]
        self._block = self._block[1:]
        if len(self._block) == self._low and not self._next_block:
            self._allocate_later()
        return ProducerId(producer_id)

    def skip_to(self, next_id: ProducerId) -> None:
        """Others have given the ids below this one."""
        self._least = max(self._least, next_id)
        self._blocks.raise_to(next_id)
        self._block = self._unused(self._block)
        self._next_block = self._unused(self._next_block)

    def _unused(self, block: range) -> range:
        return range(max(block.start, self._least), max(block.stop, self._least))

    def _use(self, block: range) -> None:
        self._block = block
        self._low = len(block) // _LOW_SHARE

    def _allocate_later(self) -> asyncio.Future[KafkaError | None]:
        if self._allocation is None:
            self._allocation = asyncio.get_running_loop().create_future()
            self._tasks.start(self._allocate(self._allocation))
        return self._allocation

    async def _allocate(self, allocation: asyncio.Future[KafkaError | None]) -> None:
        error: KafkaError | None = None
        try:
            self._next_block = self._unused(await self._blocks.allocate())
        except KafkaError as failure:
            error = failure
        finally:
            self._allocation = None
            allocation.set_result(error)
