"""A world with our controller in this process, its real channels to the stub brokers, and the embedded store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from barnabas.broker.upkeep.control_channels import ControlChannels
from barnabas.broker.upkeep.control_requests import ControlRequests, LocalLinks
from barnabas.clock import ManualClock
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.controller.links import ControlResponse
from barnabas.coordination.metadata.cache import MetadataCache, Stage
from barnabas.coordination.metadata.image import NO_LEADER, MetadataImage
from barnabas.coordination.metadata.membership import join_cluster, register
from barnabas.coordination.metadata.settings_following import SettingsFollower, last_notices
from barnabas.coordination.metadata.tree import (
    CONTROLLER,
    FEATURE,
    FeatureNode,
    encode_controller,
    encode_features,
)
from barnabas.coordination.planning.partition_changes import ElectionType
from barnabas.coordination.planning.topic_creation import NewPartitions, NewTopic
from barnabas.coordination.store.contract import (
    Check,
    Create,
    CreateMode,
    Delete,
    Operation,
    OperationResult,
    SetData,
    Store,
)
from barnabas.coordination.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.errors import NONE, KafkaError
from barnabas.model import BrokerId, TopicPartition
from barnabas.net.transport import SocketTransport
from barnabas.peers.peers import Peers
from barnabas.peers.versions import FEATURES_WITHOUT_MIN, ProtocolLevel
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_request import AlterPartitionRequest
from barnabas.protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.leader_and_isr_response import LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaResponse
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse
from tests.transcripts.world import ALTER_PARTITION_VERSION, CONTROLLER_ID, NOBODY, Errors, World, Written

LISTENER: Final = "PLAINTEXT"
PORT: Final = 9000
# Idle so many times in a row, with a turn of the event loop between: no watch and no answer is under way.
IDLE_TURNS: Final = 5


class NotingSession:
    """A session whose changes are noted."""

    def __init__(self, session: EmbeddedSession, written: list[Written]) -> None:
        self._session = session
        self._written = written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        results = await self._session.multi(operations)
        for each in operations:
            match each:
                case Create(path, data):
                    self._written.append(Written("create", path, data))
                case SetData(path, data):
                    self._written.append(Written("set", path, data))
                case Delete(path):
                    self._written.append(Written("delete", path))
                case Check():
                    pass
        return results


class Receiver:
    """The broker of the controller's own process, which has no replicas."""

    async def carry_out(self, request: ControlRequest) -> ControlResponse:
        if isinstance(request, LeaderAndIsrRequest):
            return LeaderAndIsrResponse()
        return StopReplicaResponse() if isinstance(request, StopReplicaRequest) else UpdateMetadataResponse()


class OwnWorld(World):
    def __init__(
        self,
        tree: Store,
        level: str,
        controller: Controller,
        channels: ControlChannels,
        written: list[Written],
    ) -> None:
        super().__init__(tree, level)
        self._controller = controller
        self._channels = channels
        self._written = written
        self.names.ports[PORT] = CONTROLLER_ID

    async def settle(self) -> None:
        idle = 0
        while idle < IDLE_TURNS:
            await asyncio.sleep(0.001)
            is_idle = self._controller.work.is_idle and not any(self._channels.queue_sizes.values())
            idle = idle + 1 if is_idle else 0

    def take_writes(self) -> list[Written]:
        taken = self._written[:]
        self._written.clear()
        return taken

    async def forget_topics(self, topics: Sequence[str]) -> None:
        assert not topics, "a world is for one scenario"

    async def create_topics(
        self, topics: Mapping[str, Mapping[int, Sequence[int]]], configs: Mapping[str, str] | None = None
    ) -> Errors:
        new = [
            NewTopic(name, assignments=list(assignment.items()), configs=configs or {})
            for name, assignment in topics.items()
        ]
        planned = await self._controller.create_topics(new)
        return {name: code(each) for name, each in zip(topics, planned, strict=True)}

    async def create_partitions(self, topic: str, count: int, assignment: Sequence[Sequence[int]]) -> Errors:
        (result,) = await self._controller.create_partitions([NewPartitions(topic, count, assignment)])
        return {topic: code(result)}

    async def delete_topics(self, *topics: str) -> Errors:
        return {name: code(each) for name, each in (await self._controller.delete_topics(topics)).items()}

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> Errors:
        return by_partition(await self._controller.alter_reassignments(targets))

    async def elect(self, partitions: Sequence[TopicPartition], election_type: int) -> Errors:
        return by_partition(await self._controller.elect_leaders(partitions, ElectionType(election_type)))

    async def ask_alter_partition(self, request: AlterPartitionRequest) -> Message:
        return await self._controller.alter_partition(request, ALTER_PARTITION_VERSION)

    async def ask_controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> Message:
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        return await self._controller.controlled_shutdown(request)


def code(outcome: Any) -> int:
    return outcome.code if isinstance(outcome, KafkaError) else NONE


def by_partition(results: Mapping[TopicPartition, KafkaError | None]) -> Errors:
    return {f"{at.topic}-{at.partition}": code(error) for at, error in sorted(results.items())}


@contextlib.asynccontextmanager
async def own_world(level: str, folder: Path) -> AsyncIterator[OwnWorld]:
    clock, rng = ManualClock(), Random(1)
    config = BrokerConfig(
        {
            "broker.id": str(CONTROLLER_ID),
            "listeners": f"{LISTENER}://127.0.0.1:{PORT}",
            "zookeeper.connect": "127.0.0.1:2181",
            "inter.broker.protocol.version": level,
            "auto.leader.rebalance.enable": "false",
        }
    )
    settings = LiveSettings(config)
    store = await EmbeddedStore.open([str(folder)], clock=clock)
    written: list[Written] = []
    session = cast(Store, NotingSession(await store.connect(), written))
    tree = await store.connect()
    cluster_id = await join_cluster(tree, rng, None)
    cache = MetadataCache(MetadataImage(cluster_id=cluster_id, controller_id=NO_LEADER))
    follower = SettingsFollower(session, cache, clock)
    await follower.begin(await last_notices(session))
    endpoints = config.advertised_endpoints
    await register(session, CONTROLLER_ID, endpoints=endpoints, rack=None, clock=clock)
    peers = Peers(
        CONTROLLER_ID,
        lambda _: None,
        SocketTransport(),
        asyncio.get_running_loop(),
        ProtocolLevel.parse(level),
    )
    links = LocalLinks(CONTROLLER_ID, cast(ControlRequests, Receiver()))
    channels = ControlChannels(CONTROLLER_ID, links, peers, listener=LISTENER, timeout_ms=60_000)
    controller = Controller(session, CONTROLLER_ID, cluster_id, settings, channels, clock, rng)
    cache.subscribe(Stage.CLIENTS, controller.follow_settings)
    world = OwnWorld(tree, level, controller, channels, written)
    # The scenario begins without a controller, in a cluster that has had one.
    version = 2 if ProtocolLevel.parse(level) >= FEATURES_WITHOUT_MIN else 1
    feature = FeatureNode(enabled=True, features={}, version=version)
    await tree.create(FEATURE, encode_features(feature))
    await tree.create(CONTROLLER, encode_controller(NOBODY, 0), mode=CreateMode.EPHEMERAL)
    await controller.start()
    try:
        yield world
    finally:
        await controller.close()
        await follower.close()
        await peers.close()
        await world.close()
        await store.close()
