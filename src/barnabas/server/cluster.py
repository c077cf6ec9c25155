"""The broker's place in the cluster: the store, its identity and registration, the metadata, the writer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from barnabas.broker.upkeep.config_updates import effective_config
from barnabas.config.listeners import Endpoint
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.metadata import membership
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.identity import settle_broker_id
from barnabas.coordination.metadata.image import NO_LEADER, MetadataImage
from barnabas.coordination.metadata.settings_following import SettingsFollower, last_notice
from barnabas.coordination.metadata.settings_reading import stored_topics, with_settings
from barnabas.coordination.metadata.updates import MetadataUpdates
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


class Cluster(NamedTuple):
    """The cluster as this broker sees and changes it."""

    broker_id: BrokerId
    session: Store
    settings: LiveSettings
    broker_epoch: int
    # Whether the logs of this broker are known to be whole.
    stopped_cleanly: bool
    known_topics: Collection[str]
    metadata: MetadataCache
    updates: MetadataUpdates
    follower: SettingsFollower
    writer: ClusterWriter


async def join_cluster(
    session: Store,
    settings: LiveSettings,
    advertised: Sequence[Endpoint],
    environment: Environment,
    found: FoundDirectories,
) -> Cluster:
    """Settles the broker's id, registers the broker and reads the settings of the cluster.

    From now on the live settings include those made at run time. Topics come from the controller later.
    """
    config = settings.current
    broker_id = await settle_broker_id(
        session,
        configured=config.broker_id,
        in_directories=found.broker_id,
        reserved_broker_max_id=config.reserved_broker_max_id,
    )
    cluster_id = await membership.join_cluster(session, environment.rng, found.cluster_id)
    registered = await membership.register(
        session, broker_id, endpoints=advertised, rack=config.broker_rack, clock=environment.clock
    )
    latest = await last_notice(session)
    known_topics = await stored_topics(session)
    image = MetadataImage(cluster_id=cluster_id, controller_id=NO_LEADER)
    metadata = MetadataCache(await with_settings(session, image, known_topics))
    settings.current = effective_config(config, metadata.image, broker_id)
    follower = SettingsFollower(session, metadata, environment.clock)
    await follower.begin(latest)
    return Cluster(
        broker_id=broker_id,
        broker_epoch=registered.epoch,
        stopped_cleanly=found.is_clean,
        session=session,
        settings=settings,
        known_topics=known_topics,
        metadata=metadata,
        updates=MetadataUpdates(session, metadata, broker_id, known_topics),
        follower=follower,
        writer=ClusterWriter(session, metadata, follower, settings, environment.rng),
    )
