"""Numbers that a cluster gives out once: broker ids and blocks of producer ids.

The store decides: the first to change the version it saw has the number.
"""

from __future__ import annotations

from typing import Final

from barnabas.coordination import tree
from barnabas.coordination.store import BadVersion, Store, StoreError, ensure_path
from barnabas.model import BrokerId, ProducerId

FIRST_PRODUCER_ID: Final = ProducerId(0)
PRODUCER_ID_MAX: Final = (1 << 63) - 1


class ProducerIdsExhausted(StoreError):
    """All producer ids of a cluster have been given away."""


async def generate_broker_id(store: Store, *, reserved_broker_max_id: int) -> BrokerId:
    """An id that no broker had before, above those that people choose."""
    await ensure_path(store, tree.BROKER_SEQUENCE_ID)
    stat = await store.set(tree.BROKER_SEQUENCE_ID, b"")
    return BrokerId(reserved_broker_max_id + stat.version)


async def allocate_producer_ids(
    store: Store, broker_id: BrokerId, *, at_least: ProducerId = FIRST_PRODUCER_ID
) -> tree.ProducerIdBlock:
    """The next block of producer ids, for this broker alone; it starts at `at_least` or above."""
    await ensure_path(store, tree.PRODUCER_ID_BLOCK)
    while True:
        data, stat = await store.get(tree.PRODUCER_ID_BLOCK)
        first = max(tree.decode_producer_id_block(data).last + 1 if data else 0, at_least)
        last = first + tree.PRODUCER_ID_BLOCK_SIZE - 1
        if last > PRODUCER_ID_MAX:
            raise ProducerIdsExhausted(f"{tree.PRODUCER_ID_BLOCK}: no block is left above {first - 1}")
        block = tree.ProducerIdBlock(broker_id=broker_id, first=ProducerId(first), last=ProducerId(last))
        try:
            await store.set(
                tree.PRODUCER_ID_BLOCK, tree.encode_producer_id_block(block), version=stat.version
            )
        except BadVersion:
            # Another broker took a block meanwhile; each round one of them succeeds.
            continue
        return block
