"""The election of the controller. To lose one is normal: another broker is the controller then."""

from __future__ import annotations

from typing import Final

from barnabas.clock import Clock
from barnabas.coordination.controller.state import Claim
from barnabas.coordination.metadata.tree import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from barnabas.coordination.store.contract import (
    BadVersion,
    Check,
    Create,
    CreateMode,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Store,
    StoreUnavailable,
)
from barnabas.model import BrokerId

# The connection to the store may break under an election. Each attempt waits for the next connection.
ATTEMPTS_MAX: Final = 10


async def elect(store: Store, broker_id: BrokerId, clock: Clock) -> Claim | None:
    """Tries to become the controller; None if another broker is.

    One transaction creates the node and increases the epoch, so that each controller has its own epoch.
    """
    data, stat = await store.get(CONTROLLER_EPOCH)
    epoch = decode_controller_epoch(data) + 1
    claim = Claim(controller_epoch=epoch, epoch_version=stat.version + 1)
    operations: list[Operation] = [
        Create(CONTROLLER, encode_controller(broker_id, clock.now_ms()), CreateMode.EPHEMERAL),
        SetData(CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version),
    ]
    session_id, attempts = store.session_id, 0
    while True:
        attempts += 1
        try:
            await store.multi(operations)
        except StoreUnavailable:
            # Perhaps nothing was stored, and nobody is the controller. If it was, the next attempt finds the node.
            if attempts == ATTEMPTS_MAX or store.session_id != session_id:
                raise
        except MultiFailed as failed:
            if not isinstance(failed.error, (NodeExists, BadVersion)):
                raise
            # The answer to an attempt may have been lost that has succeeded.
            return claim if await _has_won(store, claim) else None
        else:
            return claim


async def withdraw(store: Store) -> bool:
    """Removes the node of the controller if it is this session's. Raises StoreError.

    The epoch is read first: an election in the meantime, perhaps in a later session of this broker, counts.
    """
    epoch = await store.exists(CONTROLLER_EPOCH)
    node = await store.exists(CONTROLLER)
    if epoch is None or node is None or node.ephemeral_owner != store.session_id:
        return False
    try:
        await store.multi([Check(CONTROLLER_EPOCH, epoch.version), Delete(CONTROLLER)])
    except MultiFailed as failed:
        if isinstance(failed.error, (BadVersion, NoNode)):
            return False
        raise
    return True


async def _has_won(store: Store, claim: Claim) -> bool:
    controller = await store.exists(CONTROLLER)
    if controller is None or controller.ephemeral_owner != store.session_id:
        return False
    data, stat = await store.get(CONTROLLER_EPOCH)
    return (decode_controller_epoch(data), stat.version) == claim
