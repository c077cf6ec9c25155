"""Clusters for tests: brokers without logs on an embedded store in a file, started and stopped at will."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random

from barnabas.clock import ManualClock
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.controller.events import ControlRequest
from barnabas.coordination.controller.links import ControlResponse, OnAnswer
from barnabas.coordination.metadata.cache import MetadataCache, Stage
from barnabas.coordination.metadata.image import NO_LEADER, BrokerImage, MetadataImage, TopicImage
from barnabas.coordination.metadata.membership import join_cluster, register
from barnabas.coordination.metadata.settings_following import SettingsFollower, last_notices
from barnabas.coordination.metadata.settings_reading import stored_topics, with_settings
from barnabas.coordination.metadata.updates import MetadataUpdates
from barnabas.coordination.planning.topic_creation import NewTopic, PlannedTopic
from barnabas.coordination.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.coordination.writing.cluster_writer import ClusterWriter
from barnabas.coordination.writing.producer_ids import ProducerIdBlocks
from barnabas.model import BrokerId
from barnabas.protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from barnabas.protocol.messages.leader_and_isr_response import LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica_request import StopReplicaRequest
from barnabas.protocol.messages.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse
from barnabas.protocol.messages.update_metadata_request import UpdateMetadataRequest
from barnabas.protocol.messages.update_metadata_response import UpdateMetadataResponse

# A wait that lasts this long is a failure, never a slow machine.
PATIENCE_S = 120.0
BROKER = BrokerId(0)

StopReplicas = Callable[[StopReplicaRequest], Awaitable[StopReplicaResponse | None]]


def stopped(request: StopReplicaRequest, error_code: int = 0) -> StopReplicaResponse:
    """What a broker answers that has done it, or could not."""
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(
                topic_name=topic.topic_name, partition_index=each.partition_index, error_code=error_code
            )
            for topic in request.topic_states
            for each in topic.partition_states
        ]
    )


class BrokerNode:
    """A broker as far as the cluster is concerned: session, registration, metadata, writer, controller."""

    def __init__(
        self,
        brokers: Brokers,
        session: EmbeddedSession,
        broker_id: BrokerId,
        settings: LiveSettings,
        image: MetadataImage,
        known: set[str],
        clock: ManualClock,
    ) -> None:
        rng = brokers.rng
        self.broker_id = broker_id
        self.session = session
        self.cache = MetadataCache(image)
        self.updates = MetadataUpdates(session, self.cache, broker_id, known)
        self.follower = SettingsFollower(session, self.cache, clock)
        self.writer = ClusterWriter(session, self.cache, self.follower, settings, rng)
        self.blocks = ProducerIdBlocks(session, broker_id)
        self.controller = Controller(
            session, broker_id, image.cluster_id, settings, Links(brokers), clock, rng
        )
        self.roles: list[LeaderAndIsrRequest] = []
        self.stop_replicas: StopReplicas = self._stop_replicas
        self.deleted: list[tuple[str, int]] = []

    @property
    def image(self) -> MetadataImage:
        return self.cache.image

    async def receive(self, request: ControlRequest) -> ControlResponse | None:
        if isinstance(request, LeaderAndIsrRequest):
            await self.updates.learn_topics(request)
            self.roles.append(request)
            return LeaderAndIsrResponse()
        if isinstance(request, UpdateMetadataRequest):
            self.updates.update(request)
            return UpdateMetadataResponse()
        return await self.stop_replicas(request)

    async def _stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse | None:
        self.deleted += [
            (topic.topic_name, each.partition_index)
            for topic in request.topic_states
            for each in topic.partition_states
            if each.delete_partition
        ]
        return stopped(request)


class Brokers:
    """The brokers of a test: all of them are in this process."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.nodes: dict[BrokerId, BrokerNode] = {}


class Links:
    """Ways to the brokers of a test, for one controller."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._on_answer: OnAnswer
        self._waiting: deque[tuple[BrokerId, ControlRequest]] = deque()
        self._worker: asyncio.Task[None] | None = None

    def listen(self, on_answer: OnAnswer) -> None:
        self._on_answer = on_answer

    def connect(self, brokers: Mapping[BrokerId, BrokerImage]) -> None:
        pass

    def send(self, broker_id: BrokerId, request: ControlRequest) -> None:
        self._waiting.append((broker_id, request))
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        while self._worker is not None:
            await asyncio.wait([self._worker])

    async def _run(self) -> None:
        while self._waiting:
            broker_id, request = self._waiting.popleft()
            node = self._brokers.nodes.get(broker_id)
            self._on_answer(broker_id, request, None if node is None else await node.receive(request))
        self._worker = None


class Cluster:
    """`node` is broker 0; tests look behind it, or play another broker, with sessions of their own."""

    store: EmbeddedStore
    node: BrokerNode

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        self._directory = str(directory)
        self.config = BrokerConfig({"broker.id": "0", **(properties or {})})
        self.clock = ManualClock()
        self.rng = Random(1)
        self.brokers = Brokers(self.rng)
        self.images: list[tuple[MetadataImage, MetadataImage]] = []

    @property
    def controller(self) -> Controller:
        return self.node.controller

    @property
    def session(self) -> EmbeddedSession:
        return self.node.session

    @property
    def image(self) -> MetadataImage:
        return self.node.image

    @property
    def writer(self) -> ClusterWriter:
        return self.node.writer

    @property
    def blocks(self) -> ProducerIdBlocks:
        return self.node.blocks

    async def open_store(self) -> EmbeddedSession:
        self.store = await EmbeddedStore.open([self._directory], clock=self.clock)
        return await self.store.connect()

    async def start(
        self, *, clean_stop: bool = True, cluster_id: str | None = None, broker_id: BrokerId = BROKER
    ) -> Cluster:
        session = await self.open_store()
        self.node = await self.start_broker(
            session, clean_stop=clean_stop, cluster_id=cluster_id, broker_id=broker_id
        )
        return self

    async def start_broker(
        self,
        session: EmbeddedSession,
        *,
        clean_stop: bool = True,
        cluster_id: str | None = None,
        broker_id: BrokerId = BROKER,
    ) -> BrokerNode:
        cluster_id = await join_cluster(session, self.rng, cluster_id)
        image = MetadataImage(cluster_id=cluster_id, controller_id=NO_LEADER)
        latest = await last_notices(session)
        known = await stored_topics(session)
        image = await with_settings(session, image, known, skips_malformed=self.config.uses_zookeeper)
        settings = LiveSettings(self.config)
        node = BrokerNode(self.brokers, session, broker_id, settings, image, known, self.clock)
        node.cache.subscribe(Stage.REPLICAS, lambda before, after: self.images.append((before, after)))
        self.brokers.nodes[broker_id] = node
        await node.follower.begin(latest)
        await register(
            session,
            broker_id,
            endpoints=self.config.advertised_endpoints,
            rack=self.config.broker_rack,
            clock=self.clock,
        )
        await node.controller.start(clean_stop=clean_stop)
        self.images.clear()
        return node

    async def stop(self) -> None:
        await self.controller.close()
        self.brokers.nodes.clear()
        await self.store.close()

    async def restart(self, *, clean_stop: bool = True) -> Cluster:
        await self.stop()
        return await self.start(clean_stop=clean_stop)

    async def create(
        self, name: str, num_partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> TopicImage:
        new = NewTopic(name=name, num_partitions=num_partitions, configs=configs or {})
        (created,) = await self.controller.create_topics([new])
        assert isinstance(created, PlannedTopic), created
        return created.topic

    async def tree(self, path: str = "") -> dict[str, bytes]:
        """Every node below a path, and its data."""
        session = await self.store.connect()
        found: dict[str, bytes] = {}
        waiting = [path]
        while waiting:
            parent = waiting.pop()
            names, _ = await session.children(parent or "/")
            for name in names:
                child = f"{parent}/{name}"
                found[child], _ = await session.get(child)
                waiting.append(child)
        await session.close()
        return dict(sorted(found.items()))


def run(scenario: Callable[[Cluster], Awaitable[None]], directory: Path, **properties: str) -> None:
    """Runs a scenario on a cluster that is started before and stopped after. Settings have _ for dots."""

    async def main() -> None:
        settings = {name.replace("_", "."): value for name, value in properties.items()}
        cluster = Cluster(directory, settings)
        await cluster.start()
        try:
            await scenario(cluster)
        finally:
            await cluster.stop()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
