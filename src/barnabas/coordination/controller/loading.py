"""The start of a controller: it claims the cluster, reads all of it, and finds what has to be repaired.

A crash can leave behind: partitions without a state (they are created), topics that are marked for deletion (they are
kept apart), leaders that are gone (another in-sync replica takes over, or none).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from barnabas.clock import Clock
from barnabas.config.listeners import Endpoint
from barnabas.coordination.metadata.image import (
    NO_LEADER,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    TopicImage,
)
from barnabas.coordination.metadata.node_reader import MalformedNode
from barnabas.coordination.metadata.nodes import (
    children_of,
    quota_entity,
    quota_limits,
    set_state,
    state_node,
    topic_node,
)
from barnabas.coordination.metadata.scram_credentials import ScramCredential, user_credentials
from barnabas.coordination.metadata.tree import (
    BROKER_IDS,
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DEFAULT_ENTITY,
    DELETE_TOPICS,
    PERSISTENT_PATHS,
    TOPICS,
    BrokerRegistration,
    broker_path,
    config_path,
    decode_broker,
    decode_cluster_id,
    decode_config,
    decode_controller,
    decode_controller_epoch,
    decode_partition_state,
    decode_topic,
    delete_topic_path,
    desanitize,
    encode_broker,
    encode_cluster_id,
    encode_controller,
    encode_controller_epoch,
    encode_uuid,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_path,
)
from barnabas.coordination.planning.partition_changes import led_by
from barnabas.coordination.planning.topic_creation import new_partition, random_id
from barnabas.coordination.store.contract import (
    Create,
    CreateMode,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Store,
    parent_of,
)
from barnabas.errors import DuplicateBrokerRegistration, InconsistentClusterId, NotController
from barnabas.model import BrokerId, TopicPartition

log = logging.getLogger(__name__)


class Claim(NamedTuple):
    """A cluster that this broker controls, as long as the epoch's node has this version."""

    cluster_id: str
    controller_epoch: int
    epoch_version: int


class Loaded(NamedTuple):
    image: MetadataImage
    # Topics that are marked for deletion, which are in no image any more.
    deleting: dict[str, TopicImage]
    config_paths: set[str]
    repairs: list[Operation]


async def claim_cluster(
    store: Store,
    *,
    broker_id: BrokerId,
    endpoints: Sequence[Endpoint],
    rack: str | None,
    clock: Clock,
    rng: Random,
    cluster_id: str | None,
) -> Claim:
    """Makes the nodes of a new cluster, registers the broker, and makes it the controller, all at once.

    Raises InconsistentClusterId, DuplicateBrokerRegistration or NotController when the cluster is another's.
    """
    operations: list[Operation] = [
        Create(path) for path in await _missing(store, [*PERSISTENT_PATHS, "/cluster"])
    ]
    stored_id = await _get(store, CLUSTER_ID)
    if stored_id is None:
        cluster_id = cluster_id or encode_uuid(random_id(rng))
        operations.append(Create(CLUSTER_ID, encode_cluster_id(cluster_id)))
    else:
        found = decode_cluster_id(stored_id)
        if cluster_id not in (None, found):
            raise InconsistentClusterId(
                f"meta.properties is of cluster {cluster_id}, but the store is of cluster {found}: the data"
                " directories and the store do not belong together, or meta.properties is damaged. If it is, remove it:"
                " it is written again from the store"
            )
        cluster_id = found
    epoch, epoch_version = 0, -1
    if await store.exists(CONTROLLER_EPOCH) is None:
        operations.append(Create(CONTROLLER_EPOCH, encode_controller_epoch(1)))
    else:
        data, stat = await store.get(CONTROLLER_EPOCH)
        epoch, epoch_version = decode_controller_epoch(data), stat.version
        operations.append(SetData(CONTROLLER_EPOCH, encode_controller_epoch(epoch + 1), epoch_version))
    now_ms = clock.now_ms()
    registration = BrokerRegistration(
        broker_id=broker_id, endpoints=tuple(endpoints), timestamp_ms=now_ms, rack=rack
    )
    operations.append(Create(broker_path(broker_id), encode_broker(registration), CreateMode.EPHEMERAL))
    operations.append(Create(CONTROLLER, encode_controller(broker_id, now_ms), CreateMode.EPHEMERAL))
    try:
        await store.multi(operations)
    except MultiFailed as failed:
        if isinstance(failed.error, NodeExists):
            await _refuse(store, broker_id)
        raise
    return Claim(cluster_id=cluster_id, controller_epoch=epoch + 1, epoch_version=epoch_version + 1)


async def _refuse(store: Store, broker_id: BrokerId) -> None:
    """Names the owner of the store."""
    data = await _get(store, broker_path(broker_id))
    if data is not None:
        where = ", ".join(map(str, decode_broker(broker_id, data).endpoints))
        raise DuplicateBrokerRegistration(
            f"broker id {broker_id} is in use by a broker at {where}: stop it, or give this one another broker.id"
        )
    data = await _get(store, CONTROLLER)
    if data is not None:
        raise NotController(f"broker {decode_controller(data)} is the controller of this cluster")


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


async def _get(store: Store, path: str) -> bytes | None:
    try:
        data, _ = await store.get(path)
    except NoNode:
        return None
    return data


class ClusterLoader:
    """Reads the cluster for one controller."""

    def __init__(
        self, store: Store, claim: Claim, broker_id: BrokerId, rng: Random, *, clean_stop: bool
    ) -> None:
        self._store = store
        self._claim = claim
        self._broker_id = broker_id
        self._rng = rng
        self._clean_stop = clean_stop
        self._live: frozenset[BrokerId] = frozenset()
        self._repairs: list[Operation] = []
        self._config_paths: set[str] = set()
        # Found with the quotas, which are beside them.
        self._credentials: dict[str, dict[str, ScramCredential]] = {}

    async def load(self) -> Loaded:
        brokers = {
            broker.id: broker
            for broker in [await self._broker(name) for name in await self._names(BROKER_IDS)]
        }
        self._live = frozenset(brokers)
        marked = set(await self._names(DELETE_TOPICS))
        topics, deleting = {}, {}
        for name in await self._names(TOPICS):
            if name in marked:
                deleting[name] = await self._topic(name, is_going=True)
            else:
                topics[name] = await self._topic(name, is_going=False)
        self._repairs += [Delete(delete_topic_path(name)) for name in sorted(marked - deleting.keys())]
        topic_configs = await self._configs("topics")
        image = MetadataImage(
            cluster_id=self._claim.cluster_id,
            controller_id=self._broker_id,
            controller_epoch=self._claim.controller_epoch,
            brokers=brokers,
            topics=topics,
            topic_names={topic.id: name for name, topic in topics.items()},
            topic_configs={
                name: config for name, config in topic_configs.items() if config and name in topics
            },
            broker_configs={
                "" if name == DEFAULT_ENTITY else name: config
                for name, config in (await self._configs("brokers")).items()
                if config
            },
            group_configs={
                desanitize(name): config for name, config in (await self._configs("groups")).items() if config
            },
            client_metrics={
                desanitize(name): config
                for name, config in (await self._configs("client-metrics")).items()
                if config
            },
            client_quotas=await self._quotas(),
            scram_credentials=self._credentials,
        )
        return Loaded(image=image, deleting=deleting, config_paths=self._config_paths, repairs=self._repairs)

    async def _names(self, path: str) -> list[str]:
        return await children_of(self._store, path)

    async def _broker(self, name: str) -> BrokerImage:
        if not (name.isascii() and name.isdigit() and len(name) <= 10):
            raise MalformedNode(f"{BROKER_IDS}: {name[:40]!r} is no broker id")
        broker_id = BrokerId(int(name))
        data, stat = await self._store.get(broker_path(broker_id))
        registration = decode_broker(broker_id, data)
        return BrokerImage(
            id=broker_id, epoch=stat.czxid, rack=registration.rack, endpoints=registration.endpoints
        )

    async def _topic(self, name: str, *, is_going: bool) -> TopicImage:
        data, _ = await self._store.get(topic_path(name))
        assignment = decode_topic(name, data)
        count = len(assignment.partitions)
        if not count or max(assignment.partitions) != count - 1 or min(assignment.partitions) < 0:
            raise MalformedNode(f"{topic_path(name)}: its partitions are not numbered from 0 on")
        replicas = [assignment.partitions[index].replicas for index in range(count)]
        if not all(replicas):
            raise MalformedNode(f"{topic_path(name)}: a partition has no replicas")
        if is_going:
            partitions = tuple(map(new_partition, replicas))
        else:
            if await self._store.exists(partitions_path(name)) is None:
                self._repairs.append(Create(partitions_path(name)))
            partitions = tuple(
                [
                    await self._partition(TopicPartition(name, index), each)
                    for index, each in enumerate(replicas)
                ]
            )
        topic = TopicImage(name=name, id=assignment.topic_id or random_id(self._rng), partitions=partitions)
        # Releases before 2.8 gave topics no id.
        if assignment.topic_id is None and not is_going:
            self._repairs.append(SetData(topic_path(name), topic_node(topic)))
        return topic

    async def _partition(self, at: TopicPartition, replicas: tuple[BrokerId, ...]) -> PartitionImage:
        epoch = self._claim.controller_epoch
        try:
            data, stat = await self._store.get(partition_state_path(at))
        except NoNode:
            partition = new_partition(replicas)
            if partition.leader not in self._live:
                partition = replace(self._with_leader(partition), partition_epoch=0)
            if await self._store.exists(partition_path(at)) is None:
                self._repairs.append(Create(partition_path(at)))
            self._repairs.append(Create(partition_state_path(at), state_node(partition, epoch)))
            return partition
        state = decode_partition_state(at, data)
        stored = PartitionImage(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            replicas=replicas,
            isr=state.isr,
            partition_epoch=stat.version,
        )
        if stored.leader == self._broker_id and self._clean_stop:
            return stored
        partition = self._with_leader(stored)
        if partition is not stored:
            self._repairs.append(set_state(at, partition, epoch))
        return partition

    def _with_leader(self, partition: PartitionImage) -> PartitionImage:
        leader = partition.leader
        if leader in self._live and leader != self._broker_id:
            return partition
        in_sync = [each for each in partition.replicas if each in partition.isr and each in self._live]
        if in_sync:
            # After a crash this broker leads on, in a new epoch: its log may have lost its end.
            return led_by(partition, leader if leader in in_sync else in_sync[0], partition.isr)
        return partition if leader == NO_LEADER else led_by(partition, NO_LEADER, partition.isr)

    async def _configs(self, config_type: str) -> dict[str, dict[str, str]]:
        return {
            name: await self._config(config_path(config_type, name))
            for name in await self._names(f"/config/{config_type}")
        }

    async def _config(self, path: str) -> dict[str, str]:
        self._config_paths.add(path)
        data, _ = await self._store.get(path)
        return decode_config(path, data)

    async def _quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        paths = [
            f"/config/{config_type}/{name}"
            for config_type in ("users", "clients", "ips")
            for name in await self._names(f"/config/{config_type}")
        ]
        for user in [path for path in paths if path.startswith("/config/users/")]:
            clients = await self._names(f"{user}/clients")
            if clients:
                self._config_paths.add(f"{user}/clients")
            paths += [f"{user}/clients/{name}" for name in clients]
        quotas = {}
        for path in paths:
            properties = await self._config(path)
            owner, client_id, _ = entity = quota_entity(path)
            limits = quota_limits(path, properties)
            if limits:
                quotas[entity] = limits
            if owner is not None and client_id is None:
                try:
                    credentials = user_credentials(path, properties)
                except MalformedNode as error:
                    log.warning("SCRAM credentials are not used: %s", error)
                    continue
                if credentials:
                    self._credentials[owner] = credentials
        return quotas
