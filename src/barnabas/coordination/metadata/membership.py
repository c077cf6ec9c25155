"""The registration of a broker in a cluster: it creates missing nodes, checks the cluster id, and registers.

The registration says that the broker is alive. It is independent of the election of the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from barnabas.clock import Clock
from barnabas.config.listeners import Endpoint
from barnabas.coordination.metadata.identity import random_id
from barnabas.coordination.metadata.image import BrokerImage
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.tree import (
    BROKER_IDS,
    CLUSTER_ID,
    CONTROLLER_EPOCH,
    MIGRATION,
    PERSISTENT_PATHS,
    BrokerRegistration,
    broker_path,
    decode_broker,
    decode_cluster_id,
    encode_broker,
    encode_cluster_id,
    encode_controller_epoch,
    encode_uuid,
)
from barnabas.coordination.store.contract import (
    Create,
    CreateMode,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Stat,
    Store,
    Watcher,
    parent_of,
)
from barnabas.errors import DuplicateBrokerRegistration, InconsistentClusterId, InvalidConfig
from barnabas.model import BrokerId


async def join_cluster(store: Store, rng: Random, in_directories: str | None) -> str:
    """Makes Kafka's nodes as far as they are missing. Returns the cluster id.

    Raises InconsistentClusterId if the log directories have another one, InvalidConfig while one is being
    moved here.
    """
    if await store.exists(MIGRATION) is not None:
        raise InvalidConfig(
            "the metadata of a single node is being moved here, and is not complete: repeat `barnabas cluster migrate`"
        )
    paths = [*PERSISTENT_PATHS, "/cluster"]
    operations: list[Operation] = [Create(path) for path in await _missing(store, paths)]
    try:
        data, _ = await store.get(CLUSTER_ID)
    except NoNode:
        cluster_id = in_directories or encode_uuid(random_id(rng))
        operations.append(Create(CLUSTER_ID, encode_cluster_id(cluster_id)))
    else:
        cluster_id = decode_cluster_id(data)
        if in_directories not in (None, cluster_id):
            raise InconsistentClusterId(
                f"meta.properties is of cluster {in_directories}, but the store is of cluster {cluster_id}: the data"
                " directories and the store do not belong together, or meta.properties is damaged. If it is, remove it:"
                " it is written again from the store"
            )
    if await store.exists(CONTROLLER_EPOCH) is None:
        # As in Apache Kafka, where the first controller sets it to 1.
        operations.append(Create(CONTROLLER_EPOCH, encode_controller_epoch(0)))
    if operations:
        try:
            await store.multi(operations)
        except MultiFailed as failed:
            if isinstance(failed.error, NodeExists):
                # Another broker of a new cluster was faster.
                return await join_cluster(store, rng, in_directories)
            raise
    return cluster_id


async def register(
    store: Store, broker_id: BrokerId, *, endpoints: Sequence[Endpoint], rack: str | None, clock: Clock
) -> BrokerImage:
    """Registers a broker for as long as its session lasts. Raises DuplicateBrokerRegistration."""
    path = broker_path(broker_id)
    registration = BrokerRegistration(
        broker_id=broker_id, endpoints=tuple(endpoints), timestamp_ms=clock.now_ms(), rack=rack
    )
    # Only a write of existing data returns a Stat, which has the broker's epoch.
    try:
        _, stat = await store.multi(
            [Create(path, b"", CreateMode.EPHEMERAL), SetData(path, encode_broker(registration))]
        )
    except MultiFailed as failed:
        if isinstance(failed.error, NodeExists):
            data, _ = await store.get(path)
            where = ", ".join(map(str, decode_broker(broker_id, data).endpoints))
            raise DuplicateBrokerRegistration(
                f"broker id {broker_id} is in use by a broker at {where}: stop it, or give this one another broker.id"
            ) from failed
        raise
    assert isinstance(stat, Stat)
    return BrokerImage(id=broker_id, epoch=stat.czxid, rack=rack, endpoints=tuple(endpoints))


async def registered_brokers(store: Store, watcher: Watcher | None = None) -> dict[BrokerId, BrokerImage]:
    """The brokers that are alive. The watcher is called once when that changes."""
    names, _ = await store.children(BROKER_IDS, watcher)
    broker_ids = [_broker_id(name) for name in names]
    brokers = {}
    for broker_id, found in zip(
        broker_ids, await store.get_all([broker_path(each) for each in broker_ids]), strict=True
    ):
        # One may have gone since its name was read: then the watcher is called.
        if found is not None:
            data, stat = found
            registration = decode_broker(broker_id, data)
            brokers[broker_id] = BrokerImage(
                id=broker_id, epoch=stat.czxid, rack=registration.rack, endpoints=registration.endpoints
            )
    return brokers


def _broker_id(name: str) -> BrokerId:
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        raise MalformedNode(f"{BROKER_IDS}: {name[:40]!r} is no broker id")
    return BrokerId(int(name))


async def _missing(store: Store, paths: Iterable[str]) -> list[str]:
    """The missing nodes among these and the nodes above them; parents first."""
    missing: dict[str, None] = {}
    for path in paths:
        chain = []
        while path != "/" and path not in missing and await store.exists(path) is None:
            chain.append(path)
            path = parent_of(path)
        missing.update(dict.fromkeys(reversed(chain)))
    return list(missing)
