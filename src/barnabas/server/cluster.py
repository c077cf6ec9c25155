"""The broker's place in the cluster: the store, its identity, the metadata, the writer, the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.broker.upkeep.config_updates import effective_config
from barnabas.config.listeners import Endpoint
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.identity import settle_broker_id
from barnabas.coordination.store.contract import Store
from barnabas.coordination.writing.cluster_writer import ClusterWriter
from barnabas.log.manager.directory_check import FoundDirectories
from barnabas.log.manager.manager import LogManager
from barnabas.model import BrokerId
from barnabas.server.environment import Environment, StoreEngine


async def open_store(manager: LogManager, environment: Environment) -> StoreEngine:
    """An embedded store is in the log directories that can be used."""
    directories = [each.path for each in manager.live_directories()]
    return await environment.open_store(environment, directories, manager.settings.accepted_losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster as this broker sees and changes it."""

    broker_id: BrokerId
    session: Store
    settings: LiveSettings
    controller: Controller
    metadata: MetadataCache
    writer: ClusterWriter


async def join_cluster(
    session: Store,
    settings: LiveSettings,
    advertised: Sequence[Endpoint],
    environment: Environment,
    found: FoundDirectories,
) -> Cluster:
    """Settles the broker's id and opens the controller. From now on the settings include those made at run time."""
    config = settings.current
    broker_id = await settle_broker_id(
        session,
        configured=config.broker_id,
        in_directories=found.broker_id,
        reserved_broker_max_id=config.reserved_broker_max_id,
    )
    controller = await Controller.open(
        session,
        broker_id=broker_id,
        settings=settings,
        endpoints=advertised,
        clock=environment.clock,
        rng=environment.rng,
        cluster_id=found.cluster_id,
        clean_stop=found.is_clean,
    )
    metadata = controller.cache
    settings.current = effective_config(config, metadata.image, broker_id)
    return Cluster(
        broker_id=broker_id,
        session=session,
        settings=settings,
        controller=controller,
        metadata=metadata,
        writer=ClusterWriter(session, metadata),
    )
