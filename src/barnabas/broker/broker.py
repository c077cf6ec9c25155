"""The parts of a running broker, where handlers find them. `server` builds them."""

from __future__ import annotations

from barnabas.broker.parts import AuthorizerParts, ClientParts, ClusterParts, CoordinatorParts, ReplicaParts
from barnabas.broker.waiting.scheduling import Scheduling
from barnabas.config.broker_config import BrokerConfig
from barnabas.coordination.metadata.image import MetadataImage
from barnabas.metrics.registry import Registry


class Broker:
    __slots__ = (
        "acl_writer",
        "authorization",
        "automatic_topics",
        "background",
        "client_metrics",
        "clock",
        "control",
        "controller",
        "conversions",
        "delegation_tokens",
        "features",
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
        scheduling: Scheduling,
        metrics: Registry,
        cluster: ClusterParts,
        replicas: ReplicaParts,
        coordinators: CoordinatorParts,
        clients: ClientParts,
        authorizer: AuthorizerParts | None = None,
    ) -> None:
        # Handlers take a part in one step, so that a request pays nothing for the grouping.
        self.clock = scheduling.clock
        self.background = scheduling.background
        self.tasks = scheduling.tasks
        self.turns = scheduling.turns
        self.metrics = metrics
        self.metadata = cluster.metadata
        self.settings = cluster.settings
        self.control = cluster.control
        self.controller = cluster.controller
        self.writer = cluster.writer
        self.features = cluster.features
        self.delegation_tokens = cluster.delegation_tokens
        self.automatic_topics = cluster.automatic_topics
        self.log_manager = replicas.log_manager
        self.replicas = replicas.replicas
        self.log_dir_mover = replicas.log_dir_mover
        self.groups = coordinators.groups
        self.transactions = coordinators.transactions
        self.markers = coordinators.markers
        self.producer_ids = coordinators.producer_ids
        self.quotas = clients.quotas
        self.fetch_sessions = clients.fetch_sessions
        self.conversions = clients.conversions
        self.client_metrics = clients.client_metrics
        # Without an authorizer every client may do everything.
        self.authorization = None if authorizer is None else authorizer.authorization
        self.acl_writer = None if authorizer is None else authorizer.acl_writer

    @property
    def config(self) -> BrokerConfig:
        """The current configuration. Some settings change at run time, so read it for each request."""
        return self.settings.current

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()
