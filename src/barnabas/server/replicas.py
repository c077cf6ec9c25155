"""The partitions of a broker, and what follows the metadata: logs, settings, quotas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.parts import ReplicaParts
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.replication.delayed import DelayedOperations
from barnabas.broker.replication.log_dir_mover import LogDirMover
from barnabas.broker.replication.partition import PartitionContext
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.upkeep.config_updates import ConfigUpdates
from barnabas.broker.upkeep.quota_updates import QuotaUpdates
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.log.manager.manager import LogManager
from barnabas.log.partition.partition_log import PartitionLog
from barnabas.model import BrokerId, TopicPartition
from barnabas.server.cluster import Cluster
from barnabas.server.environment import Environment

if TYPE_CHECKING:
    from barnabas.broker.replication.isr_changes import ControllerLink
    from barnabas.broker.replication.replication import Replication
    from barnabas.peers.peers import Peers


def build_replicas(
    broker_id: BrokerId,
    settings: LiveSettings,
    metadata: MetadataCache,
    manager: LogManager,
    scheduling: Scheduling,
) -> ReplicaParts:
    config = settings.current
    delayed = DelayedOperations(
        scheduling.loop,
        scheduling.timer,
        fetch_purge_interval=config.fetch_purgatory_purge_interval_requests,
        produce_purge_interval=config.producer_purgatory_purge_interval_requests,
        delete_records_purge_interval=config.delete_records_purgatory_purge_interval_requests,
    )
    context = PartitionContext(broker_id, scheduling.clock, delayed, metadata, config.replica_lag_time_max_ms)
    replicas = ReplicaManager(
        context,
        scheduling.loop,
        # The store of a cluster knows all topics. A broker with a log of an earlier one has been away: it would have
        # set it aside before it made the log of a later one.
        partial(_open_log, manager, sets_aside=config.is_in_cluster),
        partial(_open_log, manager, is_new=True, sets_aside=True),
        scheduling.background.executor,
    )
    mover = LogDirMover(
        manager,
        replicas,
        scheduling,
        lambda: settings.current.replica_alter_log_dirs_io_max_bytes_per_second,
    )
    return ReplicaParts(log_manager=manager, replicas=replicas, log_dir_mover=mover)


def start_replication(
    parts: ReplicaParts,
    settings: LiveSettings,
    scheduling: Scheduling,
    environment: Environment,
    peers: Peers,
    controller: ControllerLink,
    broker_epoch: Callable[[], int],
) -> Replication:
    """For a cluster. It is to be closed before the logs are, and after nothing gives roles any more."""
    # A broker that is alone starts without these modules.
    from barnabas.broker.replication.replication import Replication

    # A fetcher writes to logs in one thread at a time.
    executor = environment.new_executor(settings.current.num_replica_fetchers, "fetchers")
    return Replication(
        parts.replicas, parts.log_manager, settings, scheduling, executor, peers, controller, broker_epoch
    )


def follow_metadata(
    cluster: Cluster,
    parts: ReplicaParts,
    quotas: Quotas,
    scheduling: Scheduling,
    use_config: Callable[[BrokerConfig], None],
) -> None:
    """`use_config` passes a new configuration to the parts that do not read it from the live settings."""
    ConfigUpdates(
        cluster.metadata,
        cluster.settings,
        parts.replicas,
        parts.log_manager,
        scheduling.tasks,
        use_config,
    ).begin()
    QuotaUpdates(cluster.metadata, quotas, scheduling.tasks).begin()


def _open_log(
    manager: LogManager,
    partition: TopicPartition,
    topic_id: bytes,
    *,
    is_new: bool = False,
    sets_aside: bool,
) -> PartitionLog:
    return manager.get_or_create(partition, topic_id, is_new=is_new, sets_aside=sets_aside)
