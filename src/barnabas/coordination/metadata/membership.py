"""The registration of a broker in a cluster: it creates missing nodes, checks the cluster id, and registers.

The registration says that the broker is alive. It is independent of the election of the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from random import Random
from types import MappingProxyType
from typing import Final

from barnabas.clock import Clock
from barnabas.config.listeners import Endpoint
from barnabas.coordination.metadata.features import SupportedFeatures
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

log = logging.getLogger(__name__)

UNREGISTERED_EPOCH: Final = -1
BROKER_ID_MAX: Final = (1 << 31) - 1
NO_SUPPORTED_FEATURES: Final[SupportedFeatures] = MappingProxyType({})


async def join_cluster(
    store: Store, rng: Random, in_directories: str | None, *, may_found: bool = True
) -> str:
    """Makes Kafka's nodes as far as they are missing. Returns the cluster id.

    Raises InconsistentClusterId if the log directories have another one, InvalidConfig while one is being moved here.
    `may_found` says whether a cluster that these directories belong to may begin again in an empty store.
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
        if in_directories is not None and not may_found:
            raise InconsistentClusterId(
                f"The log directories belong to cluster {in_directories}, but ZooKeeper has no cluster there."
                " Configured zookeeper.connect may be wrong. `barnabas cluster migrate` moves a single node there"
            ) from None
        cluster_id = in_directories or encode_uuid(random_id(rng))
        operations.append(Create(CLUSTER_ID, encode_cluster_id(cluster_id)))
    else:
        cluster_id = decode_cluster_id(data)
        if in_directories not in (None, cluster_id):
            if not may_found:
                raise InconsistentClusterId(
                    f"The Cluster ID {cluster_id} doesn't match stored clusterId {in_directories} in meta.properties."
                    " The broker is trying to join the wrong cluster. Configured zookeeper.connect may be wrong"
                )
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
                return await join_cluster(store, rng, in_directories, may_found=may_found)
            raise
    return cluster_id


class Registration:
    """The registration of this broker. It lasts as long as the session; in the next one it is made again."""

    def __init__(
        self,
        store: Store,
        broker_id: BrokerId,
        endpoints: Sequence[Endpoint],
        rack: str | None,
        clock: Clock,
        *,
        patience_s: float = 0,
        features: SupportedFeatures = NO_SUPPORTED_FEATURES,
    ) -> None:
        """`patience_s` is how long an earlier registration of this broker may take to end."""
        self._store = store
        self._broker_id = broker_id
        self._endpoints = endpoints
        self._rack = rack
        self._clock = clock
        self._patience_s = patience_s
        self._features = features
        # The broker epoch. Requests for an earlier one are refused.
        self.epoch = UNREGISTERED_EPOCH
        self._session_id: int | None = None

    async def register(self) -> None:
        """Registers the broker in the current session. Raises DuplicateBrokerRegistration, InvalidConfig."""
        await self._check_endpoints()
        registered = await register(
            self._store,
            self._broker_id,
            endpoints=self._endpoints,
            rack=self._rack,
            clock=self._clock,
            patience_s=self._patience_s,
            last_session_id=self._session_id,
            features=self._features,
        )
        self._session_id = self._store.session_id
        is_again = self.epoch not in (UNREGISTERED_EPOCH, registered.epoch)
        self.epoch = registered.epoch
        if is_again:
            log.info("Broker %d is registered again, with broker epoch %d", self._broker_id, self.epoch)

    async def _check_endpoints(self) -> None:
        ours = set(map(_address, self._endpoints))
        for other in (await registered_brokers(self._store)).values():
            taken = sorted(ours.intersection(map(_address, other.endpoints)))
            if taken and other.id != self._broker_id:
                raise InvalidConfig(
                    f"Configured end points {','.join(taken)} in advertised listeners are already registered by broker"
                    f" {other.id}: set advertised.listeners to addresses of this broker"
                )


async def register(
    store: Store,
    broker_id: BrokerId,
    *,
    endpoints: Sequence[Endpoint],
    rack: str | None,
    clock: Clock,
    patience_s: float = 0,
    last_session_id: int | None = None,
    features: SupportedFeatures = NO_SUPPORTED_FEATURES,
) -> BrokerImage:
    """Registers a broker for as long as its session lasts. Raises DuplicateBrokerRegistration.

    A registration with the same addresses is one that this broker has left behind, since it has bound them. It ends
    with its session.
    """
    path = broker_path(broker_id)
    registration = BrokerRegistration(
        broker_id=broker_id,
        endpoints=tuple(endpoints),
        timestamp_ms=clock.now_ms(),
        rack=rack,
        features=features,
    )
    has_waited = False
    while True:
        try:
            # Only a write of existing data returns a Stat, which has the broker's epoch.
            _, stat = await store.multi(
                [Create(path, b"", CreateMode.EPHEMERAL), SetData(path, encode_broker(registration))]
            )
            break
        except MultiFailed as failed:
            if not isinstance(failed.error, NodeExists):
                raise
        try:
            data, stat = await store.get(path)
        except NoNode:
            continue
        owner = stat.ephemeral_owner
        if owner == store.session_id:
            # The answer to an earlier attempt was lost.
            break
        try:
            found = decode_broker(broker_id, data).endpoints
        except MalformedNode as error:
            log.error("The registration of broker %d cannot be read: %s", broker_id, error)
            found = ()
        if owner == last_session_id:
            # ZooKeeper has ended the session, and may have kept its node (ZOOKEEPER-2985).
            with suppress(NoNode):
                await store.delete(path, version=stat.version)
        elif not has_waited and patience_s and set(map(_address, found)) == set(map(_address, endpoints)):
            has_waited = True
            log.warning(
                "Broker %d is still registered by its last run. Waiting up to %.0f s for that session to end",
                broker_id,
                patience_s,
            )
            await _wait_until_gone(store, path, patience_s)
        else:
            raise DuplicateBrokerRegistration(
                f"Error while creating ephemeral at {path}, node already exists and owner {owner:#x} does not match"
                f" current session {store.session_id:#x}: broker id {broker_id} is in use by a broker at"
                f" {', '.join(map(str, found)) or 'no known address: remove the node'}. Stop it, or give this one"
                " another broker.id"
            )
    assert isinstance(stat, Stat)
    return BrokerImage(id=broker_id, epoch=stat.czxid, rack=rack, endpoints=tuple(endpoints))


async def _wait_until_gone(store: Store, path: str, timeout_s: float) -> None:
    changed = asyncio.Event()
    if await store.exists(path, lambda event: changed.set()) is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), timeout_s)


def _address(endpoint: Endpoint) -> str:
    return f"{endpoint.host}:{endpoint.port}"


async def registered_brokers(store: Store, watcher: Watcher | None = None) -> dict[BrokerId, BrokerImage]:
    """The brokers that are alive. The watcher is called when one comes, goes, or changes its addresses.

    A node that cannot be read is no broker, until somebody mends it.
    """
    names, _ = await store.children(BROKER_IDS, watcher)
    broker_ids = []
    for name in names:
        if _is_broker_id(name):
            broker_ids.append(BrokerId(int(name)))
        else:
            log.error("%s/%s is ignored: its name is no broker id. Remove the node", BROKER_IDS, name)
    brokers = {}
    for broker_id, found in zip(
        broker_ids, await store.get_all([broker_path(each) for each in broker_ids], watcher), strict=True
    ):
        # One may have gone since its name was read: then the watcher is called.
        if found is None:
            continue
        data, stat = found
        try:
            registration = decode_broker(broker_id, data)
        except MalformedNode as error:
            log.error(
                "Broker %d counts as dead: %s. Remove the node, and restart the broker if it runs",
                broker_id,
                error,
            )
            continue
        brokers[broker_id] = BrokerImage(
            id=broker_id,
            epoch=stat.czxid,
            rack=registration.rack,
            endpoints=registration.endpoints,
            features=registration.features,
        )
    return brokers


def _is_broker_id(name: str) -> bool:
    """Kafka writes no zeros in front."""
    if not (name.isascii() and name.isdigit() and len(name) <= 10):
        return False
    return str(int(name)) == name and int(name) <= BROKER_ID_MAX


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
