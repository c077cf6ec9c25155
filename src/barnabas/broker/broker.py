"""The parts of a running broker, for handlers to find. `server` makes them and puts them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.group_runtime import GroupRuntime
from barnabas.broker.coordinators.producer_ids import ProducerIds
from barnabas.broker.coordinators.transaction_markers import TransactionMarkers
from barnabas.broker.coordinators.transaction_runtime import TransactionRuntime
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.conversions import Conversions
from barnabas.broker.requests.fetch_sessions import FetchSessions
from barnabas.broker.telemetry.client_metrics import ClientMetrics
from barnabas.broker.upkeep.automatic_topics import AutomaticTopics
from barnabas.broker.waiting.tasks import Tasks
from barnabas.broker.waiting.turns import Turns
from barnabas.clock import Clock
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.live_settings import LiveSettings
from barnabas.coordination.metadata.cache import MetadataCache
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.metrics.registry import Registry

if TYPE_CHECKING:
    from barnabas.broker.replication.log_dir_mover import LogDirMover
    from barnabas.coordination.controller.controller import Controller
    from barnabas.coordination.writing.cluster_writer import ClusterWriter
    from barnabas.log.manager.manager import LogManager


class Broker:
    __slots__ = (
        "automatic_topics",
        "client_metrics",
        "clock",
        "controller",
        "conversions",
        "fetch_sessions",
        "groups",
        "log_dir_mover",
        "log_manager",
        "markers",
        "metadata",
        "metrics",
        "producer_ids",
        "quotas",
        "replicas",
        "settings",
        "tasks",
        "transactions",
        "turns",
        "writer",
    )

    def __init__(
        self,
        *,
        clock: Clock,
        metrics: Registry,
        metadata: MetadataCache,
        settings: LiveSettings,
        controller: Controller,
        writer: ClusterWriter,
        automatic_topics: AutomaticTopics,
        client_metrics: ClientMetrics,
        log_manager: LogManager,
        log_dir_mover: LogDirMover,
        replicas: ReplicaManager,
        fetch_sessions: FetchSessions,
        groups: GroupRuntime,
        markers: TransactionMarkers,
        quotas: Quotas,
        producer_ids: ProducerIds,
        tasks: Tasks,
        transactions: TransactionRuntime,
        conversions: Conversions,
        turns: Turns,
    ) -> None:
        self.clock = clock
        self.metrics = metrics
        self.metadata = metadata
        self.settings = settings
        self.controller = controller
        self.writer = writer
        self.automatic_topics = automatic_topics
        self.client_metrics = client_metrics
        self.log_manager = log_manager
        self.log_dir_mover = log_dir_mover
        self.replicas = replicas
        self.fetch_sessions = fetch_sessions
        self.groups = groups
        self.markers = markers
        self.quotas = quotas
        self.producer_ids = producer_ids
        self.tasks = tasks
        self.transactions = transactions
        self.conversions = conversions
        self.turns = turns

    @property
    def config(self) -> BrokerConfig:
        """Some settings change at run time: read them again for each request."""
        return self.settings.current

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()
