"""Blocks of producer ids. The store assigns them to brokers, so that no id is used twice."""

from __future__ import annotations

from barnabas.coordination.metadata.identity import FIRST_PRODUCER_ID, allocate_producer_ids
from barnabas.coordination.metadata.store_errors import as_kafka_error
from barnabas.coordination.store.contract import Store, StoreError
from barnabas.coordination.writing.one_at_a_time import OneAtATime
from barnabas.model import BrokerId, ProducerId


class ProducerIdBlocks:
    """Allocates blocks for one broker."""

    def __init__(self, store: Store, broker_id: BrokerId) -> None:
        self._store = store
        self._broker_id = broker_id
        self._least = FIRST_PRODUCER_ID
        self._turns = OneAtATime()

    async def allocate(self) -> range:
        """Ids that no producer has had and no other broker gets."""
        return await self._turns.run(self._allocate())

    def raise_to(self, next_id: ProducerId) -> None:
        """Logs contain ids below this one already, whatever the store says."""
        self._least = max(self._least, next_id)

    async def close(self) -> None:
        await self._turns.close()

    async def _allocate(self) -> range:
        try:
            block = await allocate_producer_ids(self._store, self._broker_id, at_least=self._least)
        except StoreError as error:
            raise as_kafka_error(error) from error
        return range(block.first, block.last + 1)
