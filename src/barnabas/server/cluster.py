"""The broker's place in the cluster: the store, its identity and registration, the metadata, the writer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.upkeep.config_updates import effective_config
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import Endpoint
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.metadata import membership
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.features import LATEST, NO_FEATURES, SUPPORTED
from barnabas.coordination.metadata.identity import settle_broker_id, shared_broker_id
from barnabas.coordination.metadata.image import NO_LEADER, MetadataImage
from barnabas.coordination.metadata.membership import Registration
from barnabas.coordination.metadata.settings_following import SettingsFollower, last_notices
from barnabas.coordination.metadata.settings_reading import stored_topics, with_settings
from barnabas.coordination.metadata.updates import MetadataUpdates
from barnabas.coordination.store.contract import StoreEngine
from barnabas.coordination.store.renewed import RenewedStore
from barnabas.coordination.writing.cluster_writer import ClusterWriter
from barnabas.log.manager.directory_check import FoundDirectories
from barnabas.log.manager.manager import LogManager
from barnabas.model import BrokerId
from barnabas.server.environment import Environment

if TYPE_CHECKING:
    from barnabas.coordination.metadata.feature_following import FeatureFollower

# ZooKeeper ends sessions in steps of its tick, a few seconds after their time-out.
EXPIRATION_DELAY_S: Final = 10


async def open_store(config: BrokerConfig, manager: LogManager, environment: Environment) -> StoreEngine:
    """An embedded store is in the log directories that can be used."""
    directories = [each.path for each in manager.live_directories()]
    return await environment.open_store(environment, config, directories, manager.settings.accepted_losses)


class Cluster(NamedTuple):
    """The cluster as this broker sees and changes it."""

    broker_id: BrokerId
    session: RenewedStore
    settings: LiveSettings
    registration: Registration
    # Whether the logs of this broker are known to be whole.
    stopped_cleanly: bool
    known_topics: Collection[str]
    metadata: MetadataCache
    updates: MetadataUpdates
    follower: SettingsFollower
    # Only with ZooKeeper.
    features: FeatureFollower | None
    writer: ClusterWriter


async def join_cluster(
    session: RenewedStore,
    settings: LiveSettings,
    advertised: Sequence[Endpoint],
    environment: Environment,
    found: FoundDirectories,
    fail: Callable[[str], None],
) -> Cluster:
    """Settles the broker's id and reads the settings of the cluster. The broker is not registered yet.

    From now on the live settings include those made at run time. Topics come from the controller later. `fail` stops
    the broker, for a reason.
    """
    config = settings.current
    alone = partial(settle_broker_id, address=config.endpoints[0].local_address)
    settle = shared_broker_id if config.is_in_cluster else alone
    broker_id = await settle(
        session,
        configured=config.broker_id,
        in_directories=found.broker_id,
        reserved_broker_max_id=config.reserved_broker_max_id,
    )
    # ZooKeeper without the cluster that the directories belong to is most likely another ZooKeeper.
    cluster_id = await membership.join_cluster(
        session, environment.rng, found.cluster_id, may_found=not config.uses_zookeeper
    )
    latest = await last_notices(session)
    known_topics = await stored_topics(session)
    image = MetadataImage(
        cluster_id=cluster_id,
        controller_id=NO_LEADER,
        features=NO_FEATURES if config.uses_zookeeper else LATEST,
    )
    image = await with_settings(session, image, known_topics, skips_malformed=config.uses_zookeeper)
    metadata = MetadataCache(image)
    settings.current = effective_config(config, metadata.image, broker_id)
    follower = SettingsFollower(session, metadata, environment.clock)
    await follower.begin(latest)
    session.on_renewed(follower.read_again)
    features = await _follow_features(session, metadata, fail) if config.uses_zookeeper else None
    registration = Registration(
        session,
        broker_id,
        advertised,
        config.broker_rack,
        environment.clock,
        patience_s=config.zookeeper_session_timeout_ms / 1_000 + EXPIRATION_DELAY_S,
        features=SUPPORTED if config.is_in_cluster else membership.NO_SUPPORTED_FEATURES,
    )
    return Cluster(
        broker_id=broker_id,
        registration=registration,
        stopped_cleanly=found.is_clean,
        session=session,
        settings=settings,
        known_topics=known_topics,
        metadata=metadata,
        updates=MetadataUpdates(session, metadata, broker_id, known_topics, is_shared=config.is_in_cluster),
        follower=follower,
        features=features,
        writer=ClusterWriter(session, metadata, follower, settings, environment.rng),
    )


async def _follow_features(
    session: RenewedStore, metadata: MetadataCache, fail: Callable[[str], None]
) -> FeatureFollower:
    # A single node does not pay for it when it starts.
    from barnabas.coordination.metadata.feature_following import FeatureFollower

    features = FeatureFollower(session, metadata, fail)
    await features.read()
    session.on_renewed(features.read_again)
    return features


async def register(cluster: Cluster) -> None:
    """Registers the broker, now and in each later session. From now on the controller sends it roles."""
    await cluster.registration.register()
    cluster.session.on_renewed(cluster.registration.register)
