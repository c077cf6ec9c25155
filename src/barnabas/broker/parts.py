"""The parts of a running broker, grouped by their purpose. `server` builds each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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

if TYPE_CHECKING:
    from barnabas.broker.requests.authorization import Authorization
    from barnabas.broker.upkeep.feature_updates import FeatureUpdates
    from barnabas.coordination.writing.acl_writer import AclWriter
    from barnabas.coordination.writing.delegation_tokens import DelegationTokens


class ClusterParts(NamedTuple):
    metadata: MetadataCache
    settings: LiveSettings
    controller: Controller
    writer: ClusterWriter
    automatic_topics: AutomaticTopics
    control: ControlRequests
    # Only in a cluster with ZooKeeper.
    features: FeatureUpdates | None = None
    # Only with delegation.token.secret.key.
    delegation_tokens: DelegationTokens | None = None


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


class AuthorizerParts(NamedTuple):
    """Only with `authorizer.class.name`."""

    authorization: Authorization
    acl_writer: AclWriter
