"""Ids for producers, handed out one by one from blocks that the controller gives to brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from barnabas.model import ProducerId


class ProducerIds:
    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block: Iterator[int] = iter(())
        self._allocating = asyncio.Lock()

    async def next(self) -> ProducerId:
        """An id that no producer has had before, in this run or any other."""
        async with self._allocating:
            for producer_id in self._block:
                return ProducerId(producer_id)
            self._block = iter(await self._allocate())
            return ProducerId(next(self._block))
