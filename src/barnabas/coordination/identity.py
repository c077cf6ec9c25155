"""Who is who: the cluster's id, a broker's id and registration, the controller, and blocks of producer ids.

Each is decided by the store: the first to make a node, or to change the version it saw, has won.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from barnabas.coordination import tree
from barnabas.coordination.store import (
    BadVersion,
    Create,
    CreateMode,
    MultiFailed,
    NodeExists,
    SetData,
    Stat,
    Store,
    StoreError,
    ensure_path,
    parent_of,
)
from barnabas.errors import DuplicateBrokerRegistration
from barnabas.model import BrokerId, ProducerId

FIRST_CONTROLLER_EPOCH: Final = 1
FIRST_PRODUCER_ID: Final = ProducerId(0)
PRODUCER_ID_MAX: Final = (1 << 63) - 1


class ControllerMoved(StoreError):
    """Another broker is the controller, or has become it meanwhile."""


class ProducerIdsExhausted(StoreError):
    """All producer ids of a cluster have been given away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllership:
    """An election won. Writes of a controller check `epoch_version`, so that one that was replaced is refused."""

    epoch: int
    epoch_version: int


async def create_top_level_paths(store: Store) -> None:
    for path in tree.PERSISTENT_PATHS:
        await ensure_path(store, path)


async def create_or_get_cluster_id(store: Store, proposed: str) -> str:
    """The id that the cluster has, which is the proposed one if it had none."""
    await ensure_path(store, parent_of(tree.CLUSTER_ID))
    try:
        await store.create(tree.CLUSTER_ID, tree.encode_cluster_id(proposed))
    except NodeExists:
        data, _ = await store.get(tree.CLUSTER_ID)
        return tree.decode_cluster_id(data)
    return proposed


async def generate_broker_id(store: Store, *, reserved_broker_max_id: int) -> BrokerId:
    """An id that no broker had before, above those that people choose."""
    await ensure_path(store, tree.BROKER_SEQUENCE_ID)
    stat = await store.set(tree.BROKER_SEQUENCE_ID, b"")
    return BrokerId(reserved_broker_max_id + stat.version)


async def register_broker(store: Store, registration: tree.BrokerRegistration) -> int:
    """Announces a broker for as long as the session lasts, and returns its epoch.

    Raises DuplicateBrokerRegistration when the id is in use.
    """
    path = tree.broker_path(registration.broker_id)
    await ensure_path(store, tree.BROKER_IDS)
    try:
        # The second operation tells the stat, and with it the epoch, without another to come between.
        _, stat = await store.multi(
            [
                Create(path, b"", CreateMode.EPHEMERAL),
                SetData(path, tree.encode_broker(registration), 0),
            ]
        )
    except MultiFailed as failed:
        if isinstance(failed.error, NodeExists):
            raise DuplicateBrokerRegistration(
                f"broker id {registration.broker_id} is in use by another broker of this cluster"
            ) from failed
        raise
    assert isinstance(stat, Stat)
    return stat.czxid


async def elect_controller(store: Store, broker_id: BrokerId, *, now_ms: int) -> Controllership:
    """Makes this broker the controller, under an epoch that no controller had. Raises ControllerMoved if it lost."""
    with contextlib.suppress(NodeExists):
        await store.create(tree.CONTROLLER_EPOCH, tree.encode_controller_epoch(FIRST_CONTROLLER_EPOCH - 1))
    data, stat = await store.get(tree.CONTROLLER_EPOCH)
    epoch = tree.decode_controller_epoch(data)
    try:
        _, stat_set = await store.multi(
            [
                Create(tree.CONTROLLER, tree.encode_controller(broker_id, now_ms), CreateMode.EPHEMERAL),
                SetData(tree.CONTROLLER_EPOCH, tree.encode_controller_epoch(epoch + 1), stat.version),
            ]
        )
    except MultiFailed as failed:
        if isinstance(failed.error, NodeExists | BadVersion):
            raise ControllerMoved(f"another broker became the controller: {failed}") from failed
        raise
    assert isinstance(stat_set, Stat)
    return Controllership(epoch=epoch + 1, epoch_version=stat_set.version)


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
