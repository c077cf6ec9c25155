"""A cluster of one broker for tests: a controller on an embedded store in a file, started and stopped at will."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from barnabas.clock import ManualClock
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.metadata.cache import Stage
from barnabas.coordination.metadata.image import MetadataImage, TopicImage
from barnabas.coordination.planning.topic_creation import NewTopic, PlannedTopic
from barnabas.coordination.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.coordination.writing.cluster_writer import ClusterWriter
from barnabas.coordination.writing.producer_ids import ProducerIdBlocks
from barnabas.model import BrokerId

# A wait that lasts this long is a failure, never a slow machine.
PATIENCE_S = 120.0
BROKER = BrokerId(0)


class Cluster:
    """`controller` works in `session`; tests look behind it, or play another broker, with sessions of their own."""

    store: EmbeddedStore
    session: EmbeddedSession
    controller: Controller
    writer: ClusterWriter
    blocks: ProducerIdBlocks

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        self._directory = str(directory)
        self.config = BrokerConfig({"broker.id": "0", **(properties or {})})
        self.clock = ManualClock()
        self.rng = Random(1)
        self.images: list[tuple[MetadataImage, MetadataImage]] = []
        self.deleted: list[TopicImage] = []

    async def open_store(self) -> EmbeddedSession:
        self.store = await EmbeddedStore.open([self._directory], clock=self.clock)
        return await self.store.connect()

    @property
    def image(self) -> MetadataImage:
        return self.controller.cache.image

    async def start(
        self, *, clean_stop: bool = True, cluster_id: str | None = None, broker_id: BrokerId = BROKER
    ) -> Cluster:
        self.session = await self.open_store()
        self.controller = await self.open_controller(
            self.session, clean_stop=clean_stop, cluster_id=cluster_id, broker_id=broker_id
        )
        return self

    async def open_controller(
        self,
        session: EmbeddedSession,
        *,
        clean_stop: bool = True,
        cluster_id: str | None = None,
        broker_id: BrokerId = BROKER,
    ) -> Controller:
        controller = await Controller.open(
            session,
            broker_id=broker_id,
            settings=LiveSettings(self.config),
            endpoints=self.config.advertised_endpoints,
            clock=self.clock,
            rng=self.rng,
            cluster_id=cluster_id,
            clean_stop=clean_stop,
        )
        controller.cache.subscribe(Stage.REPLICAS, lambda before, after: self.images.append((before, after)))
        controller.delete_logs = self._delete_logs
        self.writer = ClusterWriter(session, controller.cache)
        self.blocks = ProducerIdBlocks(session, broker_id)
        return controller

    async def stop(self) -> None:
        await self.controller.close()
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

    async def _delete_logs(self, topics: Sequence[TopicImage]) -> None:
        self.deleted += topics


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
