"""Ids that a cluster gives out once: broker ids, blocks of producer ids, random ids.

The store decides: the first to change the version it saw has the number.
"""

from __future__ import annotations

import logging
from random import Random
from typing import Final

from barnabas.coordination.metadata import tree
from barnabas.coordination.store.contract import (
    BadVersion,
    Create,
    MultiFailed,
    SetData,
    Store,
    StoreError,
    children_of,
    ensure_path,
)
from barnabas.errors import InvalidConfig
from barnabas.model import BrokerId, ProducerId

log = logging.getLogger(__name__)

NO_BROKER_ID: Final = -1
FIRST_PRODUCER_ID: Final = ProducerId(0)
PRODUCER_ID_MAX: Final = (1 << 63) - 1


def random_id(rng: Random) -> bytes:
    """A random UUID whose text does not begin with a dash, because users pass it to commands."""
    while True:
        id_bytes = bytearray(rng.randbytes(16))
        id_bytes[6] = id_bytes[6] & 0x0F | 0x40
        id_bytes[8] = id_bytes[8] & 0x3F | 0x80
        # In URL-safe base 64 the dash is digit 62.
        if id_bytes[0] >> 2 != 62:
            return bytes(id_bytes)


class ProducerIdsExhausted(StoreError):
    """All producer ids of a cluster have been given away."""


async def settle_broker_id(
    store: Store,
    *,
    configured: int,
    in_directories: int | None,
    reserved_broker_max_id: int,
    address: str,
) -> BrokerId:
    """The id of a broker with an embedded store, which remembers it from then on.

    It is that of the configuration, else of the log directories, else of the store, else a new one. Where they
    contradict, InvalidConfig says what to do, with the address of the broker.
    """
    check_owner(configured, in_directories)
    said = configured if in_directories is None else in_directories
    known = await known_broker_ids(store)
    owners = known or await _brokers_with_replicas(store)
    remembered = BrokerId(min(owners)) if len(owners) == 1 else None
    if known and said == NO_BROKER_ID:
        # The first of several brokers of a host has the directory of the store.
        remembered = BrokerId(min(known))
    if said == NO_BROKER_ID:
        if remembered is None:
            return await generate_broker_id(store, reserved_broker_max_id=reserved_broker_max_id)
        log.warning(
            "No meta.properties says which broker this is. The store does: it is broker %d", remembered
        )
        said = remembered
    elif remembered not in (None, said):
        where, advice = "broker.id", f"Set broker.id to {remembered} or use other log.dirs"
        if in_directories is not None:
            where = "meta.properties"
            advice = f"If the file is damaged, remove it: it is written again for broker {remembered}"
        raise InvalidConfig(
            f"{where} says that this is broker {said}, but the store and its partitions belong to broker {remembered}."
            f" {advice}"
        )
    if len(known) > 1:
        from barnabas.coordination.metadata.host_brokers import confine

        await confine(store, [said], known, address)
    await ensure_path(store, tree.known_broker_path(said))
    return BrokerId(said)


def check_owner(configured: int, in_directories: int | None) -> None:
    if in_directories is not None and configured not in (NO_BROKER_ID, in_directories):
        raise InvalidConfig(
            f"broker.id is {configured}, but the log directories belong to broker {in_directories}: set broker.id to"
            f" {in_directories} or use other log.dirs"
        )


async def shared_broker_id(
    store: Store, *, configured: int, in_directories: int | None, reserved_broker_max_id: int
) -> BrokerId:
    """The id of a broker whose store is that of a cluster: configured, of the log directories, or a new one."""
    check_owner(configured, in_directories)
    if configured != NO_BROKER_ID:
        return BrokerId(configured)
    if in_directories is not None:
        return BrokerId(in_directories)
    await ensure_path(store, tree.BROKER_SEQUENCE_ID)
    # The store counts the writes; no two brokers get the same count.
    stat = await store.set(tree.BROKER_SEQUENCE_ID, b"")
    return BrokerId(reserved_broker_max_id + stat.version)


async def generate_broker_id(store: Store, *, reserved_broker_max_id: int) -> BrokerId:
    """An id that no broker had before, above those that people choose. The store remembers it with the same change."""
    await ensure_path(store, tree.BROKER_SEQUENCE_ID)
    await ensure_path(store, tree.KNOWN_BROKERS)
    while True:
        _, stat = await store.get(tree.BROKER_SEQUENCE_ID)
        broker_id = BrokerId(reserved_broker_max_id + stat.version + 1)
        try:
            await store.multi(
                [
                    SetData(tree.BROKER_SEQUENCE_ID, b"", stat.version),
                    Create(tree.known_broker_path(broker_id)),
                ]
            )
        except MultiFailed as failed:
            if isinstance(failed.error, BadVersion):
                # Another broker took the id in the meantime; in each round one of them succeeds.
                continue
            raise
        return broker_id


async def known_broker_ids(store: Store) -> set[int]:
    """The brokers that use an embedded store. Version 0.1 did not write them down."""
    return {int(name) for name in await children_of(store, tree.KNOWN_BROKERS)}


async def _brokers_with_replicas(store: Store) -> set[int]:
    brokers: set[int] = set()
    if await store.exists(tree.TOPICS) is None:
        return brokers
    for name in (await store.children(tree.TOPICS))[0]:
        data, _ = await store.get(tree.topic_path(name))
        for assignment in tree.decode_topic(name, data).partitions.values():
            brokers.update(assignment.replicas)
    return brokers


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
            # Another broker took a block in the meantime; in each round one of them succeeds.
            continue
        return block
