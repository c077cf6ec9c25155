"""The parts of a running broker, grouped by their purpose. `server` builds each group."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.broker.coordinators.group_runtime import GroupRuntime
from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.coordinators.transaction_markers import TransactionMarkers
from barnabas.broker.coordinators.transaction_runtime import TransactionRuntime
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.replication.log_dir_mover import LogDirMover
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.conversions import Conversions
from barnabas.broker.requests.fetch_sessions import FetchSessions
from barnabas.broker.telemetry.client_metrics import ClientMetrics
from barnabas.broker.upkeep.automatic_topics import AutomaticTopics
from barnabas.broker.upkeep.control_requests import ControlRequests
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.controller.controller import Controller
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.writing.cluster_writer import ClusterWriter
from barnabas.log.manager.manager import LogManager


class ClusterParts(NamedTuple):
    metadata: MetadataCache
    settings: LiveSettings
    controller: Controller
    writer: ClusterWriter
    automatic_topics: AutomaticTopics
    control: ControlRequests


class ReplicaParts(NamedTuple):
    log_manager: LogManager
    replicas: ReplicaManager
    log_dir_mover: LogDirMover


class CoordinatorParts(NamedTuple):
    groups: GroupRuntime
    transactions: TransactionRuntime
    markers: TransactionMarkers
    producer_ids: ProducerIds


class ClientParts(NamedTuple):
    """The broker's state of its clients between requests."""

    quotas: Quotas
    fetch_sessions: FetchSessions
    conversions: Conversions
    client_metrics: ClientMetrics
